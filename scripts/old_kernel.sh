#!/usr/bin/env bash
# Boots a kernel of a Debian package in qemu, without KVM, on this machine's own files (read only, by 9p), and
# runs `gputop check` and tests of exact counts, detaching and lines there: what GPUTOP_ATTACH=perf imitates is
# seen for real. Ends as the tests or the command do.
#
#   old_kernel.sh [PACKAGE.deb] [-- COMMAND]   PACKAGE: any linux-image-*; else this system's
#
# Takes six minutes. Needs: apt-get install qemu-system-x86 busybox-static kmod cpio bpftrace
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

fail() {
	printf 'old-kernel: %s\n' "$*" >&2
	exit 1
}
for tool in qemu-system-x86_64 busybox depmod cpio dpkg-deb bpftrace; do
	command -v "$tool" >/dev/null ||
		fail "no $tool here: apt-get install qemu-system-x86 busybox-static kmod cpio bpftrace"
done
[[ $root != /tmp/* ]] || fail "the guest has a /tmp of its own: put the repository elsewhere"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=
if [ $# -gt 0 ] && [ "$1" != -- ]; then
	package=$(realpath "$1")
	shift
fi
[ "${1:-}" != -- ] || shift

if [ -z "$package" ]; then
	# the package without a version depends on the one that holds the kernel
	name=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -1)
	(cd "$work" && apt-get download "$name" >said 2>&1) || fail "no package $name: apt-get update? $(cat "$work/said")"
	package=$(ls "$work"/*.deb)
fi

if [ $# -gt 0 ]; then
	printf '%q ' "$@" >"$work/command"
else
	cat >"$work/command" <<-'END'
		python -m gputop check
		export PYTHONDONTWRITEBYTECODE=1 GPUTOP_TEST_PATIENCE=10 GPUTOP_REQUIRE_ALL=1
		python -m pytest -p no:cacheprovider -v --durations=0 -k 'c_processes and perf or drains or program_and and 13' \
			tests/ebpf/test_ebpf_counts.py tests/ebpf/test_ebpf_lines.py tests/ebpf/test_ebpf_lifecycle.py
	END
fi

mkdir "$work/kernel" "$work/shared"
dpkg-deb -x "$package" "$work/kernel"
modules=$(echo "$work"/kernel/lib/modules/* "$work"/kernel/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -1)
release=$(basename "$modules")
base=${modules%/lib/modules/*}
depmod -b "$base" "$release"

# what runs first: loads what 9p needs, then changes to this machine's files
first=$work/first
mkdir -p "$first"/{bin,modules,root,dev}
cp "$(command -v busybox)" "$first/bin/busybox"
for module in virtio_pci 9pnet_virtio 9p; do
	modprobe -d "$base" -S "$release" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
	name=$(basename "${file%.xz}")
	case $file in
	*.xz) xz -dc "$file" >"$first/modules/$name" ;;
	*) cp "$file" "$first/modules/$name" ;;
	esac
	echo "$name" >>"$first/modules/order"
done
cat >"$first/init" <<'END'
#!/bin/busybox sh
b=/bin/busybox
for module in $($b cat /modules/order); do $b insmod "/modules/$module"; done
share() { $b mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose"$1" "$2" "$3"; }
share ,ro machine /root
$b mount -t devtmpfs none /root/dev
$b mkdir -p /root/dev/pts /root/dev/shm
$b mount -t devpts none /root/dev/pts
$b mount -t proc none /root/proc
$b mount -t sysfs none /root/sys
$b mount -t tracefs none /root/sys/kernel/tracing
$b mount -t debugfs none /root/sys/kernel/debug
for folder in dev/shm run tmp var/cache; do $b mount -t tmpfs -o mode=1777 none "/root/$folder"; done
$b ip link set lo up
share "" shared /root/mnt
$b chroot /root /bin/bash /mnt/run
echo $? >/root/mnt/status
$b sync
$b poweroff -f
END
chmod +x "$first/init"
(cd "$first" && find . | cpio --quiet -o -H newc) >"$work/initrd"

# compiled here: in the guest it would take minutes
mkdir "$work/shared/gputop"
cp -r "$(.venv/bin/python -c 'from gputop.simgpu import ensure_built; print(ensure_built())')" "$work/shared/gputop/"
{
	printf 'cd %q\n' "$root"
	printf 'export HOME=%q PATH=%q TERM=dumb\n' "$HOME" "$root/.venv/bin:$PATH"
	printf 'cp -r /mnt/gputop /var/cache/\n'
	printf 'stty -onlcr; uname -r; set -e\n'
	cat "$work/command"
} >"$work/shared/run"

qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3G -nographic -no-reboot -nic none \
	-kernel "$base"/boot/vmlinuz-* -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" \
	-virtfs local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap \
	-virtfs local,path="$work/shared",mount_tag=shared,security_model=none,id=shared </dev/null
[ -s "$work/shared/status" ] || fail "$release did not come to its end"
exit "$(cat "$work/shared/status")"
