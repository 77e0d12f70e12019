#!/usr/bin/env bash
# Runs golangci-lint over every module, all by the one .golangci.yml.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

lint=$(scripts/tool.sh golangci-lint)
# Its cache knows nothing of where a checkout lies, but the rules do.
export GOLANGCI_LINT_CACHE="$root/.bin/lint-cache"
"$lint" config verify
modules=$(scripts/modules.sh)
for module in $modules; do
	echo "lint: $module"
	(cd "$module" && "$lint" run --config "$root/.golangci.yml" ./...)
done
