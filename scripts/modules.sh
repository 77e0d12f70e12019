#!/usr/bin/env bash
# Prints the folder of every Go module of the repository, the library's first.
set -euo pipefail
cd "$(dirname "$0")/.."

find . -name go.mod -not -path '*/.*/*' -exec dirname {} + | sort
