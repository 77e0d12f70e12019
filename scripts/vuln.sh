#!/usr/bin/env bash
# Runs govulncheck on the library. A machine that cannot reach the vulnerability
# database is told so and passes.
set -euo pipefail
cd "$(dirname "$0")/.."

vulncheck=$(scripts/tool.sh govulncheck)
status=0
out=$("$vulncheck" ./... 2>&1) || status=$?
echo "$out"
case "$out" in
*"fetching vulnerabilities"*)
	echo "vuln: NOT CHECKED: the vulnerability database cannot be reached from here"
	exit 0
	;;
esac
exit "$status"
