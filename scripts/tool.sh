#!/usr/bin/env bash
# Usage: tool.sh NAME. Builds the tool of that name, in the version that
# tools/go.mod pins, and prints the path of its binary.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

pkg=$(cd "$root/tools" && go list -f '{{.ImportPath}}' tool | grep -E "/$1\$")
bin="$root/.bin/$1"
go build -C "$root/tools" -o "$bin" "$pkg"
echo "$bin"
