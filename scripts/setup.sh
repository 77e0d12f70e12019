#!/usr/bin/env bash
# Installs the servers that the tests start, where it may: on Debian and its kin,
# as root. Elsewhere it names the command and fails. What is there is left alone.
# Then it builds the Temporal server, for which Go is enough. `setup.sh demo` leaves
# out what the tests alone need.
set -euo pipefail
cd "$(dirname "$0")/.."

# have COMMAND...: one of the commands is on PATH.
have() {
	local c
	for c in "$@"; do
		if command -v "$c" >/dev/null; then return 0; fi
	done
	return 1
}

# packages installs what is missing, in a shell of its own: what it changes for the
# time of the installation ends with that.
packages() (
	# A line for each: is it there, and which Debian packages bring it?
	missing=()
	have redis-server valkey-server || missing+=(redis-server)
	have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
	if [ "${1:-}" != demo ]; then
		have cc gcc clang || missing+=(gcc libc6-dev) # for the race detector
		have pgbouncer /usr/sbin/pgbouncer || missing+=(pgbouncer)
	fi

	if [ "${#missing[@]}" -eq 0 ]; then
		echo "setup: all packages are there"
		exit 0
	fi

	if ! have apt-get || [ "$(id -u)" -ne 0 ]; then
		echo "setup: missing: ${missing[*]}. Install with one of" >&2
		echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
		echo "  brew install redis postgresql pgbouncer" >&2
		exit 1
	fi

	# Debian starts the services of new packages at once. The tests start servers of
	# their own, so a policy says no for as long as this script runs.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
	fi

	echo "setup: installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "${missing[@]}"

	# Nor at the next boot.
	if [ -d /run/systemd/system ]; then
		for service in redis-server postgresql pgbouncer; do
			case " ${missing[*]} " in *" $service "*) systemctl disable --now "$service" ;; esac
		done
	fi
)

if ! have go; then
	echo "setup: missing: go, 1.26 or later. See https://go.dev/doc/install" >&2
	exit 1
fi
packages "$@"
echo "setup: looking for the Temporal server; the first time this compiles for some minutes"
temporal=$(go run ./internal/devstack/temporalbuild)
echo "setup: Temporal: $temporal"
