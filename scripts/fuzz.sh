#!/usr/bin/env bash
# Runs every fuzz target of the library for FUZZTIME (default 30s).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(go list ./...)
for pkg in $packages; do
	targets=$(go test -list '^Fuzz' "$pkg")
	for target in $(sed -n '/^Fuzz/p' <<<"$targets"); do
		echo "fuzz: $pkg $target"
		go test -run '^$' -fuzz "^${target}\$" -fuzztime "${FUZZTIME:-30s}" "$pkg"
	done
done
echo "fuzz: done"
