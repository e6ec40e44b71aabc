#!/usr/bin/env bash
# Installs numba-cuda and pyzmq, without PyTorch, for the stories of programs that have none; outside of the repository
# (0.8 GB). It says where its Python is. Again: at once. Nothing else needs it.
set -euo pipefail

version=0.30.4
folder=${GPUTOP_NUMBA:-${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/numba-$version}
python=${PYTHON:-$("$(dirname "$0")/python.sh")}

if [ -e "$folder/complete" ]; then
	printf '%s\n' "$folder/bin/python"
	exit
fi
fail() {
	rm -rf "$folder"
	printf 'numba: %s\n' "$*" >&2
	exit 1
}
rm -rf "$folder"
"$python" -m venv "$folder" >&2 || fail "$python cannot make a virtual environment in $folder"
"$folder/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-cache-dir \
	"numba-cuda[cu13]==$version" pyzmq >&2 </dev/null || fail "pip could not install numba-cuda $version and pyzmq"
touch "$folder/complete"
printf '%s\n' "$folder/bin/python"
