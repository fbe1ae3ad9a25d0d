#!/usr/bin/env bash
# Makes an archive for store/tests/fixtures: a store that a release of Apache's broker wrote, with
# what a stock client read from it.
#
#   make_store.sh VERSION stop|kill ARCHIVE.tar.xz
#
# "stop" ends the broker in good order, "kill" by SIGKILL.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
(($# == 3)) || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
export RMQ_VERSION=$1
end=$2 archive=$(realpath -m -- "$3")
STATE=$(mktemp -d)
export STATE NAMESRV_PORT=${NAMESRV_PORT:-19976} BROKER_PORT=${BROKER_PORT:-21011}
trap '"$here/peer.sh" kill; rm -rf "$STATE"' EXIT
client=5.5.0
[[ $RMQ_VERSION == 4.* ]] && client=4.9.8
NAMESRV_ADDR=$("$here/peer.sh" start)
export NAMESRV_ADDR
run() { STATE=$STATE/clients "$here/../java/run.sh" "$client" StoreMessages "$@"; }
topics=$(run write Golden 1 small | tail -n 1)
# shellcheck disable=SC2086 # a word for each topic
run read CG-Golden $topics | grep '^{' >"$STATE/expected.jsonl"
"$here/peer.sh" "$end"
rm -f "$STATE/store/lock"
XZ_OPT=-9e tar cJSf "$archive" -C "$STATE" expected.jsonl store
ls -l "$archive"
