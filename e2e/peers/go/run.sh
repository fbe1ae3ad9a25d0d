#!/usr/bin/env bash
# Builds (when something changed) and runs the Go scenarios; see main.go.
#
#   run.sh [--list]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
command -v go >/dev/null || { echo "run.sh: no 'go' here: install Go from https://go.dev/dl" >&2; exit 1; }
key=$(cat -- "$here"/main.go "$here"/go.{mod,sum} | sha256sum | cut -c1-12)
program=${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-rs/go/scenarios-$key
if [[ ! -x $program ]]; then
    echo "run.sh: building the Go scenarios, once; kept in $program" >&2
    (cd "$here" && CGO_ENABLED=0 go build -buildvcs=false -o "$program.$$" .) >&2
    mv "$program.$$" "$program"
fi
state=${STATE:-${TMPDIR:-/tmp}/rocketmq-go-$(id -u)}
mkdir -p "$state"
HOME=$state exec "$program" "$@" # the client writes its log under HOME
