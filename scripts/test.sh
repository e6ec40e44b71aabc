#!/usr/bin/env bash
# Runs the tests. Without arguments all of them: first those that measure times or look at the whole machine
# (marker "alone"), one after the other, then the rest on two processors at once. With arguments, pytest's,
# one run in one process. A test that hangs ends after two minutes, the whole after TEST_LIMIT_S.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	printf 'test: not root, so the tests with real eBPF are skipped\n' >&2
fi
export PYTHONDONTWRITEBYTECODE=1
limit=${TEST_LIMIT_S:-1800}

run() {
	local left=$((limit - SECONDS)) # of timeout, 0 would mean no limit
	timeout --foreground --signal=INT --kill-after=30 "$((left > 1 ? left : 1))" \
		.venv/bin/python -m pytest --timeout=120 --durations=15 "$@"
}

if [ $# -gt 0 ]; then
	run "$@"
	exit
fi
status=0
run -m alone || status=$?
run -m "not alone" --numprocesses=2 --dist=loadgroup -q || status=$?
exit "$status"
