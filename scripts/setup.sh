#!/usr/bin/env bash
# Installs what is missing: Debian packages, the virtual environment, the project.
#   scripts/setup.sh system what gputop needs of the system, nothing in the checkout
#   scripts/setup.sh run    what gputop needs
#   scripts/setup.sh dev    and what its tests and linters need
# Says nothing and changes nothing when all of it is there. Everything it says goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-run}
python=${PYTHON:-$(scripts/python.sh)}
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
	say "$*"
	exit 1
}

# -- Debian packages -------------------------------------------------------------------------------

packages=(python3-bpfcc gcc libc6-dev)
[ "$level" = dev ] && packages+=(binutils bpftool bpftrace chromium debian-archive-keyring fish g++ git libcap2-bin make mount nodejs openssl procps shellcheck strace stress-ng tmux util-linux xz-utils)

missing_packages() {
	command -v dpkg-query >/dev/null || return 0
	local installed package
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
	for package in "$@"; do
		grep -qx "installed $package" <<<"$installed" || printf '%s\n' "$package"
	done
}

# Exit status 1: not installed. The reason has been said.
install_packages() {
	if ! command -v apt-get >/dev/null; then
		say "this is neither Debian nor Ubuntu: install what these packages hold: $*"
		return 1
	fi
	if [ "$(id -u)" -ne 0 ]; then
		say "missing packages, only root can install them: apt-get install $*"
		return 1
	fi
	say "installing packages: $*"
	export DEBIAN_FRONTEND=noninteractive
	if [ -z "${updated:-}" ]; then
		# a source that cannot be reached is no reason to stop: the others may have all that is needed
		apt-get update -q >&2 </dev/null || true
		updated=1
	fi
	if ! apt-get install -y -q --no-install-recommends "$@" >&2 </dev/null; then
		say "apt-get could not install $*: is there a network, and do the package sources offer them?"
		return 1
	fi
}

install_python() {
	local name=$1
	# a distribution's package is named after its interpreter: python3.12 -> python3.12-venv
	case $name in
	python3 | python3.[0-9]*) install_packages "$name" "$name-venv" || exit 1 ;;
	*) fail "there is no $name: set PYTHON to a Python 3.10 or newer" ;;
	esac
}

check_python() {
	command -v "$python" >/dev/null || install_python "$python"
	"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
		fail "$python is older than 3.10: install a newer one (apt-get install python3.11 python3.11-venv)" \
			"and name it: make $level PYTHON=python3.11"
	# Debian keeps ensurepip in a package of its own
	if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
		install_packages "$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')" ||
			fail "$python cannot make a virtual environment without that package"
	fi
}

# -- the virtual environment -----------------------------------------------------------------------

# Changes when anything changes that the installation was made from.
key() {
	"$python" -c 'import sys; print(sys.version, sys.executable)'
	pwd
	sha256sum pyproject.toml scripts/setup.sh
}

same_python() {
	local version='import sys, pip; print(sys.version)'
	[ -x $venv/bin/python ] && grep -qF "$PWD/$venv" $venv/bin/activate 2>/dev/null &&
		[ "$($venv/bin/python -c "$version" 2>/dev/null)" = "$("$python" -c 'import sys; print(sys.version)')" ]
}

install_project() {
	local what=.
	[ "$level" = dev ] && what='.[test,lint,cuda-test,exchange,exchange-test,sql,fleet,dask,storage,storage-test,mcp,web,serve,otlp]'
	if ! same_python; then
		say "making the virtual environment $venv with $("$python" --version)"
		"$python" -m venv --clear $venv >&2 || fail "$python cannot make a virtual environment in $PWD"
	fi
	say "installing gputop and the Python packages it needs"
	# compat: the checkout in the path, not an import hook, which costs each start of Python half its time
	$venv/bin/python -m pip --disable-pip-version-check install --quiet --config-settings editable_mode=compat \
		--editable "$what" >&2 </dev/null ||
		fail "pip could not install them: is there a network? Nothing else is missing for: make $level"
}

# Prometheus and promtool, for tests, without their package's service: its files, in the user's cache.
unpack_prometheus() {
	local place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/prometheus folder
	[ ! -x "$place/usr/bin/promtool" ] && command -v apt-get >/dev/null || return 0
	say "unpacking the package prometheus into $place"
	folder=$(mktemp -d)
	chmod 777 "$folder" # apt downloads as a user of its own
	if (cd "$folder" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } &&
		mkdir -p "$place" && dpkg-deb -x ./*.deb "$place") >&2 </dev/null; then
		rm -rf "$folder"
		return 0
	fi
	rm -rf "$folder"
	say "prometheus could not be had, so the tests with it are skipped: is there a network?"
}

# Slurm and munge, for a test that runs a cluster of one node: 14 MB with the libraries that are not installed.
unpack_slurm() {
	local place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/slurm folder names one
	[ ! -e "$place/complete" ] && command -v apt-get >/dev/null || return 0
	say "unpacking Slurm into $place"
	folder=$(mktemp -d)
	chmod 777 "$folder"
	# simulated: apt then tells what else they need here
	names=$(apt-get install -s --no-install-recommends slurmctld slurmd slurm-client munge 2>/dev/null |
		awk '$1 == "Inst" { print $2 }') || true
	# shellcheck disable=SC2086
	if [ -n "$names" ] && (cd "$folder" && { apt-get download -q $names || { apt-get update -q && apt-get download -q $names; }; } &&
		mkdir -p "$place" && for one in ./*.deb; do dpkg-deb -x "$one" "$place" || exit; done &&
		: >"$place/complete") >&2 </dev/null; then
		rm -rf "$folder"
		return 0
	fi
	rm -rf "$folder"
	say "it could not be had, so the test with it is skipped: is there a network?"
}

# VictoriaMetrics, for the test with a receiver of OpenTelemetry's metrics: in the user's cache as well.
unpack_victoria() {
	local place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/victoria said
	[ ! -e "$place/complete" ] && command -v apt-get >/dev/null || return 0
	say "unpacking VictoriaMetrics of Debian sid into $place"
	if said=$(scripts/unstable.sh "$place" usr/bin/victoria-metrics victoria-metrics 2>&1 </dev/null); then
		rm -f "$place"/usr/bin/vm* # its other programs, 200 MB
	else
		say "it could not be had, so the test with it is skipped: $(tail -n 1 <<<"$said")"
	fi
}

absent=$(missing_packages "${packages[@]}")
if [ -n "$absent" ]; then
	# replay and stats work without; gputop itself says what it lacks for more
	# shellcheck disable=SC2086
	install_packages $absent || { [ "${GPUTOP_REQUIRE_ALL:-}" != 1 ] || exit 1; }
fi
check_python
[ "$level" != system ] || exit 0
[ "$level" != dev ] || {
	unpack_prometheus
	unpack_slurm
}
wanted=$(key)
if [ "$wanted" != "$(cat "$venv/.setup-$level" 2>/dev/null)" ]; then
	install_project
	printf '%s\n' "$wanted" >"$venv/.setup-$level"
	[ "$level" = run ] || cp "$venv/.setup-$level" $venv/.setup-run
fi
if [ "$level" = dev ]; then
	unpack_victoria
	scripts/pythons.sh || true # it has said so, and the tests are skipped
fi
