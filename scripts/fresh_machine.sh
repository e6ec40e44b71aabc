#!/usr/bin/env bash
# Runs the README's two commands as root in a bare Debian of its own: what they install is all that they have.
# The files of this checkout are copied into it; the kernel and this machine's network are shared. Ends as the
# commands do, and leaves nothing behind.
#
#   fresh_machine.sh [WORDS]    WORDS: pytest's, for `make test`; all: every test. Without: a part with each kind
#                               of thing that tests need
#
# SUITE names another Debian (bookworm), MIRROR where its packages come from. Needs: apt-get install mmdebstrap
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}
# a compiler, NVIDIA's own compiler, a screen, another process, eBPF
part="tests/test_cli.py tests/test_simgpu_programs.py tests/test_ui_screens.py tests/ebpf/test_ebpf_waits.py"

fail() {
	printf 'fresh-machine: %s\n' "$*" >&2
	exit 1
}

inside() {
	printf 'fresh-machine: %s\n' "$*" >&2
	chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		TERM=dumb LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive GPUTOP_REQUIRE_ALL=1 "${given[@]}" \
		sh -c "cd /work && exec \"\$@\"" sh "$@" </dev/null
}

# In a mount namespace of its own: what is mounted here, nobody else sees, and it is gone with this process.
commands() {
	mount --bind "$root" "$root" # what is inside finds a mount point at /, as on a machine
	for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
	given=()
	while IFS='=' read -r name value; do
		case $name in
		PIP_*) ;;
		*_proxy | *_PROXY) given+=("$name=$value") && continue ;;
		*) continue ;;
		esac
		given+=("$name=$value")
		for place in ${value//file:\/\//}; do # of pip's sources those that are folders of this machine
			if [ -d "$place" ]; then
				mkdir -p "$root$place"
				mount --bind "$place" "$root$place"
				mount -o remount,bind,ro "$root$place"
			fi
		done
	done < <(env)
	inside apt-get update -q >/dev/null
	inside apt-get install -y -q --no-install-recommends make >/dev/null # as the README says
	inside make run ARGS="--once --duration 1"
	inside make test ARGS="$*"
}

if [ "${1:-}" = --inside ]; then
	root=$2
	shift 2
	commands "$@"
	exit
fi

[ "$(id -u)" -eq 0 ] || fail "not root: sudo make fresh-machine"
command -v mmdebstrap >/dev/null || fail "no mmdebstrap here: apt-get install mmdebstrap"
words=${*:-$part}
[ "$words" != all ] || words=
root=$(mktemp -d -p /var/tmp gputop-fresh-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT # nothing was ever mounted where this runs

printf 'fresh-machine: a bare %s in %s\n' "$suite" "$root" >&2
mmdebstrap --quiet --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" ||
	fail "mmdebstrap could not make it: is there a network, and does $mirror have $suite?"
mkdir "$root/work"
tar --exclude=./.git --exclude=./.venv --exclude=__pycache__ --exclude='./.*_cache' --exclude='./*.egg-info' -cf - . |
	tar -C "$root/work" -xf -
cp /etc/resolv.conf /etc/hosts "$root/etc/"
# whom this machine trusts, and where its pip looks: else it would have another network than this one
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
	[ ! -e "$file" ] || cp "$file" "$root$file"
done
unshare --mount --propagation private "$0" --inside "$root" "$words"
printf 'fresh-machine: both commands do what the README says\n' >&2
