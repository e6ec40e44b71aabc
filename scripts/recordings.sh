#!/usr/bin/env bash
# Records each demo into recordings/, or those named; FOLDER, SECONDS_EACH. As root: real eBPF.
# At a high priority and with a simulated GPU of their own, so that whatever else runs here leaves no trace.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
folder=${FOLDER:-recordings}
state=$(mktemp)
trap 'rm -f "$state"' EXIT
export SIMGPU_STATE=$state

[ $# -gt 0 ] || mapfile -t names < <(gputop demo --list | awk '{ print $1 }')
for name in "${@:-${names[@]}}"; do
	setsid --wait sh -c 'echo -20 >/proc/self/autogroup; exec "$@"' sh \
		gputop record -o "$folder/$name.msgpack" --private --simgpu -- \
		gputop demo "$name" --duration "${SECONDS_EACH:-3}"
	chmod a+r "$folder/$name.msgpack"
done
