#!/usr/bin/env bash
# Unpacks Pythons for tests of which this system has no package: from Debian's unstable suite, with the libraries that
# they were built for, each into a root of its own in the user's cache. Nothing is installed. Says nothing when all are
# there; ends with status 1 where one cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

minors=(14 15)
place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/pythons
said=$(mktemp)
trap 'rm -f "$said"' EXIT

unpacked() {
	local name=python3.$1 root=$place/3.$1
	scripts/unstable.sh "$root" "usr/bin/$name" "$name" "lib$name" >"$said" 2>&1 </dev/null &&
		"$root/usr/bin/$name" -c 'import ctypes' >>"$said" 2>&1
}

missing=0
for minor in "${minors[@]}"; do
	[ ! -e "$place/3.$minor/complete" ] || continue
	printf 'pythons: unpacking Python 3.%s of Debian sid into %s\n' "$minor" "$place" >&2
	# a second time, where the mirror changed between its list and its packages
	if ! unpacked "$minor" && ! unpacked "$minor"; then
		rm -f "$place/3.$minor/complete"
		printf 'pythons: it could not be had, so the tests with it are skipped: %s\n' "$(tail -n 1 "$said")" >&2
		missing=1
	fi
done
exit $missing
