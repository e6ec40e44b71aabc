#!/usr/bin/env bash
# Builds Pythons without the GIL for tests, into the user's cache: no distribution has packages of them. The sources are
# those that Debian 13 and Ubuntu 26.04 build their Pythons from. Some minutes each; says nothing when all are there; ends
# with status 1 where one cannot be had.
set -euo pipefail

# version, where its source is, its hash
pythons=(
	"3.13 http://deb.debian.org/debian/pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz
	93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640"
	"3.14 http://archive.ubuntu.com/ubuntu/pool/main/p/python3.14/python3.14_3.14.4.orig.tar.xz
	d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8"
)
place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/pythons
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The root appears whole or not at all, with a file `complete` in it.
build() {
	local version=$1 source=$2 hash=$3 root=$place/$1t
	python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
		"$source" "$work/source.tar.xz" &&
		printf '%s %s\n' "$hash" "$work/source.tar.xz" | sha256sum --check --quiet &&
		mkdir -p "$work/$version" "$root" &&
		tar -C "$work/$version" --strip-components=1 -xJf "$work/source.tar.xz" &&
		cd "$work/$version" &&
		./configure --disable-gil --disable-test-modules --without-ensurepip --prefix="$root/usr" &&
		make -j"$(nproc)" && make install && "$root/usr/bin/python${version}t" -c 'import ctypes' &&
		touch "$root/complete"
}

missing=0
for python in "${pythons[@]}"; do
	read -r -d '' version source hash <<<"$python" || :
	[ ! -e "$place/${version}t/complete" ] || continue
	printf 'free_threaded: building Python %s without the GIL into %s\n' "$version" "$place" >&2
	if ! (build "$version" "$source" "$hash") >"$work/said" 2>&1 </dev/null; then
		printf 'free_threaded: it could not be had, so the tests with it are skipped: %s\n' \
			"$(tail -n 1 "$work/said")" >&2
		missing=1
	fi
done
exit $missing
