#!/usr/bin/env bash
# Installs a CUDA build of PyTorch for the simulated GPU, outside of the repository (1 GB), and says where its Python
# is: the wheel itself, without NVIDIA's libraries. The simulated GPU has those that matter; the rest are stubs that say
# what is not simulated. It is of no use on a real GPU. Again: at once. Nothing but tests and trials needs it.
set -euo pipefail

version=2.15.0
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${GPUTOP_TORCH_CUDA:-${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/torch-cuda-$version}
python=${PYTHON:-$("$root/scripts/python.sh")}

if [ -e "$folder/complete" ]; then
	printf '%s\n' "$folder/bin/python"
	exit
fi
fail() {
	rm -rf "$folder"
	printf 'torch-cuda: %s\n' "$*" >&2
	exit 1
}
for tool in cc nm readelf; do
	command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install gcc libc6-dev binutils"
done
rm -rf "$folder"
"$python" -m venv "$folder" >&2 || fail "$python cannot make a virtual environment in $folder"
pip=("$folder/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-cache-dir --no-compile)
"${pip[@]}" --no-deps "torch==$version" >&2 </dev/null || fail "pip could not install torch $version"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
grep -q '^cuda.*= .[0-9]' "$site/torch/version.py" || fail "only a CPU build of torch $version is offered here"
# pip knows that NVIDIA's packages are missing, and says so at length
"${pip[@]}" filelock typing-extensions sympy networkx jinja2 fsspec numpy >&2 2>/dev/null </dev/null ||
	fail "pip could not install what torch needs"
rm -rf "$site/torch/include" # headers, for those who compile extensions
# code for real GPUs is two thirds of the largest library, and nothing reads it here: a hole in the file
if command -v fallocate >/dev/null; then
	read -r offset size < <(readelf -SW "$site/torch/lib/libtorch_cuda.so" |
		sed -n 's/.*\] *\.nv_fatbin *PROGBITS *[0-9a-f]* *\([0-9a-f]*\) *\([0-9a-f]*\) .*/0x\1 0x\2/p')
	fallocate --punch-hole --offset "$offset" --length "$size" "$site/torch/lib/libtorch_cuda.so" 2>/dev/null || true
fi
PYTHONPATH=$root "$folder/bin/python" -m scripts.torch_stubs "$site" >&2 || fail "the stubs do not compile"
# the first use: shows that it works, and keeps what Python compiles, so that later ones take 3 s instead of 7
first='import torch; torch.optim.SGD([torch.zeros(1, device="cuda")], 0.1).zero_grad(); torch.cuda.synchronize()'
run='import os, sys; from gputop.simgpu import environment
os.execve(sys.executable, [sys.executable, "-c", sys.argv[1]], environment(os.environ))'
PYTHONDONTWRITEBYTECODE='' PYTHONPATH=$root SIMGPU_STATE=$folder/state "$folder/bin/python" -c "$run" "$first" >&2 ||
	fail "torch $version does not run on the simulated GPU"
rm -f "$folder"/state*
touch "$folder/complete"
printf '%s\n' "$folder/bin/python"
