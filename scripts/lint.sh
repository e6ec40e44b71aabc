#!/usr/bin/env bash
# Style, types, the direction of imports, layout and names. Runs all of them at once, then says whether one failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PWD/.venv/bin:$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
checks=() jobs=()

check() {
	"$@" >"$folder/${#checks[@]}" 2>&1 &
	jobs+=($!)
	checks+=("$*")
}

check mypy # the longest
check lint-imports
check python3 -m scripts.layout
check ruff check .
check ruff format --check --exclude '*.md' gputop probes replay tests scripts
if command -v shellcheck >/dev/null; then
	check shellcheck scripts/*.sh .ci/run
fi
failed=()
for number in "${!checks[@]}"; do
	wait "${jobs[$number]}" || failed+=("${checks[$number]}")
	printf '== %s\n' "${checks[$number]}"
	cat "$folder/$number"
done
[ ${#failed[@]} -eq 0 ] || {
	printf 'lint: failed: %s\n' "${failed[@]}"
	exit 1
}
