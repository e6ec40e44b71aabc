#!/usr/bin/env bash
# Runs the tests in two parts at once: those that measure times (marker "timed"), one behind the other and before all
# else that this machine does; and all others in many processes, of which those that observe with eBPF wait until the
# times are measured (tests/sharing.py). Two thirds of their time is waiting for programs that are observed, so they
# are three processes for each processor, eight at most. Nothing is run again (docs/decisions/0009). With arguments,
# pytest's, one run in one process. A test that hangs ends after eight minutes, the whole after an hour (TEST_LIMIT_S).
# Those that take minutes (marker "long") are run by -m long alone, in the same way, for six hours at most. --quick
# alone is what needs neither root nor eBPF nor another process: a minute on two processors.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ] && [ "${1:-}" != --quick ]; then
	printf 'test: not root, so the tests with real eBPF are skipped\n' >&2
fi
# each process would compile the tests again, which takes longer than some of them; but no files of root's in
# somebody else's checkout
if [ -O . ]; then unset PYTHONDONTWRITEBYTECODE; else export PYTHONDONTWRITEBYTECODE=1; fi
limit=${TEST_LIMIT_S:-3600} chosen='not long'
more=()
if [ "${1:-} ${2:-}" = "-m long" ]; then # and those with random examples, ten times as many of them
	shift 2
	limit=${TEST_LIMIT_S:-21600}
	more=(--hypothesis-profile=many)
	chosen='long or hypothesis'
	.venv/bin/python -c 'import atheris' 2>/dev/null ||
		.venv/bin/python -m pip --disable-pip-version-check install --quiet 'atheris>=3' >&2 </dev/null ||
		printf 'test: no atheris for this Python: inputs are mutated blindly\n' >&2
	scripts/free_threaded.sh || :
	scripts/inspector.sh || :
fi

export OPENBLAS_NUM_THREADS=1 # as gputop does: nothing here multiplies matrices

run() { # replaces this process, so that a signal to it reaches pytest
	local left=$((limit - SECONDS)) # of timeout, 0 would mean no limit
	exec timeout --foreground --signal=INT --kill-after=30 "$((left > 1 ? left : 1))" \
		.venv/bin/python -m pytest --timeout=480 "$@"
}

processes=$((3 * $(nproc)))
processes=$((processes < 8 ? processes : 8))
if [ "$*" = --quick ]; then
	run --quick --numprocesses="$(nproc)" -q --durations=0 --durations-min=5
fi
if [ $# -gt 0 ]; then
	[ ${#more[@]} -eq 0 ] || set -- -m "$chosen" "${more[@]}" "$@"
	run --durations=15 "$@"
fi

part() { # a run beside this script, with a cache of its own
	run -o cache_dir="$folder/$1" "${more[@]}" "${@:2}" &
	parts+=($!)
}

# compiling the tests takes each process longer than all else before its first test: once, in a checkout that is new
if [ -z "${PYTHONDONTWRITEBYTECODE:-}" ] && ! compgen -G 'tests/ebpf/__pycache__/test_*-pytest-*.pyc' >/dev/null; then
	for half in 'tests/ebpf tests/faults tests/test_[a-f]*.py' 'tests/test_[g-z]*.py'; do
		# shellcheck disable=SC2086 # names and patterns
		.venv/bin/python -m pytest --collect-only -qq $half >/dev/null 2>&1 &
	done
	wait
fi

failed=0 parts=() job=""
folder=$(mktemp -d)
export GPUTOP_TEST_NAMESPACES=$folder/namespaces # the parts are apart, too (tests/apart.py)
mkdir "$GPUTOP_TEST_NAMESPACES"
times=$folder/times
touch "$times"
# whoever ends this script ends its tests
trap 'for job in $(jobs -pr); do kill -INT "$job" || :; done; wait; rm -rf "$folder"' EXIT
GPUTOP_TEST_TIMES=$times part others -m "not timed and ($chosen)" --numprocesses="$processes" -q --durations=15 \
	>"$folder/said" 2>&1
part timed -m "timed and ($chosen)" -q --durations=5
wait "${parts[1]}" || failed=$?
rm "$times"
wait "${parts[0]}" || failed=$?
cat "$folder/said"
exit "$failed"
