#!/usr/bin/env bash
# Checks gputop on a machine with a real GPU: root, Linux 6, no network; the machine's own Python has PyTorch with CUDA.
# Lies in the kit as `gpu-check`. Results: a folder with results.json, results.md and recordings. Started again, it goes
# on where it stopped.
#
#   gpu-check [-o FOLDER] [--python PYTHON] [FLAGS]    gpu-check --help tells the flags
#
# Unpacks its own Python with all that gputop needs into /opt/gputop-kit, 400 MB; `rm -rf` takes it away.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ -e "$here/root.tar.xz" ] || here=$(cd "$here/.." && pwd)/gpu-kit
place=/opt/gputop-kit

fail() {
	printf 'gpu-check: %s\n' "$*" >&2
	exit 1
}
# some machines have no xz, and every Python with PyTorch has lzma
unpacked() {
	local python named='' code='import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])'
	tar -C "$place" -xJf "$here/root.tar.xz" 2>/dev/null && return
	while [ $# -gt 1 ]; do
		[ "$1" != --python ] || named=$2
		shift
	done
	for python in "$named" python3 python /opt/conda/bin/python; do
		"$python" -I -c "$code" "$here/root.tar.xz" "$place" 2>/dev/null && return
	done
	return 1
}
[ -e "$here/root.tar.xz" ] || fail "there is no kit: make gpu-kit, on a machine with a network"
[ "$(id -u)" -eq 0 ] || fail "only root can trace: sudo $0"
if ! cmp -s "$here/root.sha256" "$place/root.sha256"; then
	(cd "$here" && sha256sum --quiet -c root.sha256) || fail "the kit is damaged: copy it again"
	rm -rf "$place"
	{ mkdir -p "$place" && chmod 755 "$place"; } || fail "$place cannot be made, and nothing else is searched for the loader"
	unpacked "$@" || fail "neither xz nor a Python with lzma is here: name one, --python PATH"
	cp "$here/root.sha256" "$place/"
fi
exec "$place/bin/python3" -I -m tests.gpu_check "$@"
