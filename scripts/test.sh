#!/usr/bin/env bash
# Runs the tests. Without arguments all of them: first those that measure times or look at the whole machine
# (marker "alone"), one after the other, then the rest on two processors at once. With arguments, pytest's,
# one run in one process. A test that hangs ends after two minutes, the whole after an hour (TEST_LIMIT_S).
# Those that take minutes (marker "long") are run by -m long alone, for six hours at most. --quick alone
# (tests/quick.py) is what needs neither root nor eBPF nor another process: a minute on two processors.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ] && [ "${1:-}" != --quick ]; then
	printf 'test: not root, so the tests with real eBPF are skipped\n' >&2
fi
export PYTHONDONTWRITEBYTECODE=1
limit=${TEST_LIMIT_S:-3600}
if [ "${1:-} ${2:-}" = "-m long" ]; then
	limit=${TEST_LIMIT_S:-21600}
	.venv/bin/python -c 'import atheris' 2>/dev/null ||
		.venv/bin/python -m pip --disable-pip-version-check install --quiet 'atheris>=3' >&2 </dev/null ||
		printf 'test: no atheris for this Python: inputs are mutated blindly\n' >&2
fi

run() {
	local left=$((limit - SECONDS)) # of timeout, 0 would mean no limit
	timeout --foreground --signal=INT --kill-after=30 "$((left > 1 ? left : 1))" \
		.venv/bin/python -m pytest --timeout=120 --durations=15 "$@"
}

if [ "$*" = --quick ]; then
	run --quick --numprocesses=2 -q --durations=0 --durations-min=5
	exit
fi
if [ $# -gt 0 ]; then
	run "$@"
	exit
fi
outcome=$(mktemp)
trap 'rm -f "$outcome"' EXIT
status=0
run -m "alone and not long" | tee "$outcome" || status=$?
run -m "not alone and not long" --numprocesses=2 --dist=loadgroup -q | tee -a "$outcome" || status=$?
# both of pytest's last lines as one: "2 failed, 2578 passed in 700s"
awk -v seconds="$SECONDS" '/(passed|failed|errors?).* in [0-9.]+s( |$)/ {
	gsub(/=/, "")
	split($0, halves, " in ")
	count = split(halves[1], parts, ",")
	for (i = 1; i <= count; i++) {
		split(parts[i], words, " ")
		if (words[2] !~ /deselected/) sums[words[2]] += words[1]
	}
}
END {
	line = ""
	for (word in sums) line = line (line == "" ? "" : ", ") sums[word] " " word
	print "======== " line " in " seconds "s ========"
}' "$outcome"
exit "$status"
