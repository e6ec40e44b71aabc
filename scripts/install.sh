#!/usr/bin/env bash
# Copies gputop into a virtual environment of its own, PREFIX/lib/gputop, and puts a launcher into PREFIX/bin,
# both below DESTDIR; or takes them away (--remove). Nothing of this checkout is used afterwards: who can write
# to it must not get code into a program that runs as root.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
copy=$root/lib/gputop
launcher=$root/bin/gputop
mark='# launcher of gputop, made by: make install'
owned=$copy/.made-by-make-install

fail() {
	printf 'install: %s\n' "$*" >&2
	exit 1
}

# The first folder of a way that others than root could change. Debian's staff may be let into /usr/local.
changed_by_others() {
	local folder owner mode group
	folder=$(readlink -m -- "$1")
	while :; do
		if [ -e "$folder" ]; then
			read -r owner mode group < <(stat -c '%u %a %G' -- "$folder")
			mode=$((8#$mode))
			if [ "$group" = root ] || [ "$group" = staff ]; then mode=$((mode & ~8#020)); fi
			if [ "$owner" -ne 0 ] || { [ $((mode & 8#022)) -ne 0 ] && [ $((mode & 8#1000)) -eq 0 ]; }; then
				printf '%s\n' "$folder"
				return
			fi
		fi
		[ "$folder" != / ] || return 0
		folder=$(dirname -- "$folder")
	done
}

case $prefix in
/*) ;;
*) fail "PREFIX=$prefix: an absolute path is meant" ;;
esac
if [ "$(id -u)" -eq 0 ] && [ -z "${DESTDIR:-}" ]; then
	others=$(changed_by_others "$root")
	[ -z "$others" ] || fail "$others can be changed by others than root, so root must run nothing from there;" \
		"choose another PREFIX, or install as that user"
fi
if [ -e "$launcher" ] && ! grep -qsxF "$mark" "$launcher"; then
	fail "$launcher is something else; move it away first"
fi
if [ -e "$copy" ] && [ ! -e "$owned" ]; then
	fail "$copy is something else; move it away first"
fi
if [ "${1:-}" = --remove ]; then
	rm -rf -- "$launcher" "$copy" || fail "$launcher cannot be removed; try: sudo make uninstall"
	exit
fi

for folder in "$root/bin" "$root/lib"; do
	if ! mkdir -p "$folder" || [ ! -w "$folder" ]; then
		fail "$folder cannot be written; try: sudo make install, or PREFIX=\$HOME/.local"
	fi
done

# -- the copy ----------------------------------------------------------------------------------------

work=$(mktemp -d)
trap 'rm -rf -- "$work" "$copy.new" "$launcher.new"' EXIT
rm -rf -- "$copy.new"
# built from a copy: what an earlier build has left in the checkout stays there, and nothing is added to it
cp -R pyproject.toml README.md LICENSE gputop replay probes "$work"
python=${PYTHON:-$(scripts/python.sh)}
"$python" -I -m venv "$copy.new" >&2 || fail "$python cannot make a virtual environment"
python=$copy.new/bin/python
"$python" -I -m pip --disable-pip-version-check install --quiet "$work" >&2 </dev/null ||
	fail "pip could not install what gputop needs: is there a network?"
if [ "$(id -u)" -eq 0 ]; then
	others=$("$python" -I -c '
import os, sys
from gputop.process.path_trust import weak_part
theirs = [folder for folder in sys.path if not folder.startswith(sys.prefix + os.sep)]
print(next(filter(None, map(weak_part, [os.path.realpath(sys.executable), *theirs])), ""))')
	[ -z "$others" ] || fail "$others belongs to this Python and can be changed by others than root;" \
		"name another one: make install PYTHON=/usr/bin/python3"
fi
# the launcher is the only way in; pip and the others name a folder that is moved now
find "$copy.new/bin" -mindepth 1 ! -name 'python*' -delete
: >"$copy.new/${owned##*/}"
rm -rf -- "$copy"
mv -- "$copy.new" "$copy"

# -- the launcher ------------------------------------------------------------------------------------

# 'it'\''s' is how a shell spells it's
quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# -I: neither the current folder nor PYTHONPATH can put other code into a program that runs as root
cat >"$launcher.new" <<END
#!/bin/sh
$mark
exec $(quote "$prefix/lib/gputop/bin/python") -I -m gputop "\$@"
END
chmod 755 "$launcher.new"
mv -- "$launcher.new" "$launcher"
printf 'install: %s\n' "$launcher"
