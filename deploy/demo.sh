#!/usr/bin/env bash
# A cluster on this machine from the manifest that Kubernetes would take, 10,000 messages through it,
# and what came out. Ends the cluster again; its data is kept.
#
#   deploy/demo.sh DIRECTORY-OF-THE-PROGRAMS
#
# PORT_OFFSET moves every port, for a machine where 9876 or 10911 is taken.
set -euo pipefail
bin=$(cd -- "${1:?directory of the programs}" && pwd)
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
offset=${PORT_OFFSET:-0}
export NAMESRV_ADDR=127.0.0.1:$((9876 + offset))
# Of their own, so that a second run on the kept data counts its own messages only.
topic=Demo-$(date +%H%M%S) group=demo-$$ count=10000
cd "$root"

step() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "rmq $*"; "$bin/rmq" "$@"; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step "A cluster on this machine: rocketmq-operator local up deploy/samples/local.yaml"
"$bin/rocketmq-operator" local up deploy/samples/local.yaml --port-offset "$offset" >"$log" 2>&1 &
cluster=$!
stop() {
    status=$?
    trap - EXIT INT TERM
    if kill -TERM "$cluster" 2>/dev/null; then wait "$cluster" || true; fi
    rm -f "$log"
    exit "$status"
}
trap stop EXIT INT TERM
until grep -q 'is ready' "$log"; do
    if ! kill -0 "$cluster" 2>/dev/null; then cat "$log" >&2; exit 1; fi
    sleep 0.1
done
cat "$log"
run cluster

step "Sending $count messages"
run topic create "$topic" --queues 8
run send "$topic" --count "$count" --size 128 --key "demo-$$"

step "Consuming them: every one exactly once"
run consume "$topic" --group "$group" --from first --tag '*' --expect "$count" --timeout 20s

step "Where the group is"
run group progress "$group"

step "Stopping the cluster"
kill -TERM "$cluster"
wait "$cluster" || true
cat <<TEXT

That was one name server and one broker. What to try next:

  $bin/rocketmq-operator local up deploy/samples/local.yaml     # keep it running; Ctrl-C ends it
  $bin/rmq send $topic hello --tag a                            # in another terminal
  $bin/rmq consume $topic --group me --from first
  Any stock RocketMQ client: name server 127.0.0.1:9876
  make demo-kubernetes                                          # the same on a real Kubernetes
TEXT
