#!/usr/bin/env bash
# Runs every test, one after the other: tests with real eBPF measure times, and two at once would fight
# for the processors. A test that hangs ends after two minutes, the whole run after TEST_LIMIT_S.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	printf 'test: not root, so the tests with real eBPF are skipped\n' >&2
fi
export PYTHONDONTWRITEBYTECODE=1
exec timeout --foreground --signal=INT --kill-after=30 "${TEST_LIMIT_S:-1800}" \
	.venv/bin/python -m pytest --timeout=120 --durations=15 "$@"
