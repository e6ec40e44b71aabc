#!/usr/bin/env bash
# Puts a launcher into DESTDIR/PREFIX/bin, or takes it away (--remove). The launcher names the interpreter
# of this checkout's virtual environment, since sudo hands on neither PATH nor VIRTUAL_ENV.
set -euo pipefail
cd "$(dirname "$0")/.."

launcher=${DESTDIR:-}${PREFIX:-/usr/local}/bin/gputop
mark='# launcher of gputop, made by: make install'

fail() {
	printf 'install: %s\n' "$*" >&2
	exit 1
}

if [ -e "$launcher" ] && ! grep -qsxF "$mark" "$launcher"; then
	fail "$launcher is something else; move it away first"
fi
if [ "${1:-}" = --remove ]; then
	rm -f "$launcher" || fail "$launcher cannot be removed; try: sudo make uninstall"
	exit
fi

# 'it'\''s' is how a shell spells it's
quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

folder=$(dirname "$launcher")
if ! mkdir -p "$folder" || [ ! -w "$folder" ]; then
	fail "$folder cannot be written; try: sudo make install, or PREFIX=\$HOME/.local"
fi
# -I: neither the current folder nor PYTHONPATH can put other code into a program that runs as root
cat >"$launcher.new" <<END
#!/bin/sh
$mark
exec $(quote "$PWD/.venv/bin/python") -I -m gputop "\$@"
END
chmod 755 "$launcher.new"
mv "$launcher.new" "$launcher"
printf 'install: %s\n' "$launcher"
