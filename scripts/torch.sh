#!/usr/bin/env bash
# Installs a CPU build of PyTorch for the tests with its real DataLoader, outside of the repository (1 GB), compiles
# the shim that gives it the simulated GPU, and says where its Python is. Never a CUDA build. Again: at once. Nothing
# else needs it.
set -euo pipefail

version=2.13.0
folder=${GPUTOP_TORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/torch-$version}
python=${PYTHON:-$("$(dirname "$0")/python.sh")}

fail() {
	printf 'torch: %s\n' "$*" >&2
	exit 1
}
done_with() {
	.venv/bin/python -m tests.stories.shim.build >&2 || fail "the shim does not compile"
	printf '%s\n' "$folder/bin/python"
	exit
}
cd "$(dirname "$0")/.."
[ ! -e "$folder/complete" ] || done_with
rm -rf "$folder"
"$python" -m venv "$folder" >&2 || fail "$python cannot make a virtual environment in $folder"
pip=("$folder/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
# what would be installed, before anything large is fetched: CUDA builds bring NVIDIA's libraries along
plan=$("${pip[@]}" --dry-run --report - "torch==$version" numpy </dev/null) || fail "there is no torch $version here"
if grep -qE '"name": "(nvidia|triton|cuda)' <<<"$plan"; then
	rm -rf "$folder"
	fail "only a CUDA build of torch $version is offered here"
fi
"${pip[@]}" "torch==$version" numpy >&2 </dev/null || fail "pip could not install torch $version"
if ! "$folder/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then
	rm -rf "$folder"
	fail "that is not a CPU build"
fi
touch "$folder/complete"
done_with
