#!/usr/bin/env bash
# Runs the tests many times in a row and tells each run in a line: which failed, how long it took. Each third one
# (BUSY_EVERY; 1 is all of them) is beside stress-ng on two processors and a gputop of somebody else's that records the
# whole machine; with STAND_STILL=1 the machine stands still now and then besides, in each run (scripts/stand_still.py).
# RUNS (30); logs lie in build/runs, and what tests of a failed run left in the
# temporary directory stays there. Exit status 1: a run failed.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-30} every=${BUSY_EVERY:-3}
folder=build/runs
mkdir -p "$folder"
alone() { # also where this is ended: the tests with it
	local job
	for job in $(jobs -pr); do kill "$job" || :; done
	wait
	rm -f "$folder/others.msgpack"
}
trap alone EXIT

failed=0
for number in $(seq "$runs"); do
	log=$folder/$(printf %02d "$number").log beside=quiet status=0
	if [ $((number % every)) -eq 0 ]; then
		beside=busy
		stress-ng --quiet --cpu 2 &
		.venv/bin/gputop record --detail summary -o "$folder/others.msgpack" >/dev/null 2>&1 </dev/null &
	fi
	if [ "${STAND_STILL:-0}" -ne 0 ]; then
		beside+=", stands still"
		python3 scripts/stand_still.py &
	fi
	left=$(mktemp -d) && chmod 755 "$left" # short, for the sockets in it; open, as that for temporary files is
	began=$SECONDS
	PYTEST_DEBUG_TEMPROOT=$left scripts/test.sh >"$log" 2>&1 </dev/null &
	wait $! || status=$?
	took=$((SECONDS - began))
	alone
	names=$(grep -oE '^(FAILED|ERROR) [^ ]+' "$log" | cut -d' ' -f2 | sort -u | tr '\n' ' ' || :)
	printf '%2d %s %d:%02d %s\n' "$number" "$beside" $((took / 60)) $((took % 60)) \
		"$([ "$status" -eq 0 ] && echo passed || echo "failed: ${names:-status $status, see $log}")"
	if [ "$status" -eq 0 ]; then
		rm -rf "$left"
	else
		printf 'its tests left %s\n' "$left" >>"$log"
		failed=$((failed + 1))
	fi
done
printf '%d of %d runs failed\n' "$failed" "$runs"
[ "$failed" -eq 0 ]
