#!/usr/bin/env bash
# Opens gputop. Without an NVIDIA driver: over a demo on the simulated GPU.
set -euo pipefail
bin=$(cd "$(dirname "$0")/../.venv/bin" && pwd)
export PATH="$bin:$PATH"

has_driver() { [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ]; }

# $1 is the command that was asked for, or a flag of the live screen
case ${1:-} in
demo | diff | replay | simgpu | stats) exec gputop "$@" ;;
esac
has_driver && exec gputop "$@"

demo=(-- gputop demo healthy --alone)
for word in "$@"; do
	case $word in
	# somebody names what to watch, or only asks for help
	-- | --pid | --pid=* | --help | -h | --version) demo=() ;;
	esac
done
if [ "${1:-}" = record ]; then
	shift
	exec gputop record --simgpu "$@" "${demo[@]}"
fi
exec gputop --simgpu "$@" "${demo[@]}"
