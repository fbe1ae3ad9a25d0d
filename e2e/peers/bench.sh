#!/usr/bin/env bash
# The stock Java client's own benchmark programs against Apache's servers and ours, in turn, on this
# machine and in this run. Prints one table of medians.
#
#   bench.sh DIRECTORY-OF-OUR-PROGRAMS
#
# ROUNDS (3) alternations, SECONDS_PER_CASE (20), CASES (a regular expression of case names).
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd -- "${1:?directory of our programs}" && pwd)
rounds=${ROUNDS:-3} seconds=${SECONDS_PER_CASE:-20} cases=${CASES:-.}
namesrv_port=19876 broker_port=20911
state=$(mktemp -d)
trap 'end_servers; rm -rf "$state"' EXIT
jars=$("$here/jars.sh" "$here/bench/pom.xml" 5.5.0)
rows=$state/rows

start_apache() {
    STATE=$state/apache NAMESRV_PORT=$namesrv_port BROKER_PORT=$broker_port "$here/apache/peer.sh" start >/dev/null
    broker_pid=$(<"$state/apache/broker.pid")
}
start_ours() {
    mkdir -p "$state/ours"
    "$bin/rocketmq-namesrv" --port $namesrv_port --health-port 0 \
        --set "kvConfigPath=$state/ours/kvConfig.json" >"$state/ours/namesrv.log" 2>&1 &
    namesrv_pid=$!
    printf '%s\n' brokerClusterName=DefaultCluster brokerName=broker-a brokerIP1=127.0.0.1 \
        listenPort=$broker_port namesrvAddr=127.0.0.1:$namesrv_port metricsPromExporterPort=25557 \
        "storePathRootDir=$state/ours/store" diskMaxUsedSpaceRatio=95 >"$state/ours/broker.conf"
    "$bin/rocketmq-broker" -c "$state/ours/broker.conf" >"$state/ours/broker.log" 2>&1 &
    broker_pid=$!
    until (exec 3<>/dev/tcp/127.0.0.1/$broker_port) 2>/dev/null; do
        kill -0 "$broker_pid" || { cat "$state/ours/broker.log" >&2; exit 1; }
        sleep 0.1
    done
}
end_servers() {
    if [[ -d $state/apache ]]; then STATE=$state/apache "$here/apache/peer.sh" stop; fi
    local pid
    for pid in ${broker_pid:-} ${namesrv_pid:-}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    broker_pid='' namesrv_pid=''
    rm -rf "${state:?}/apache" "${state:?}/ours"
}
ticks() { awk '{ sub(/^.*\) /, ""); print $12 + $13 }' "/proc/$broker_pid/stat"; }

run_case() { # SERVER CASE CLASS ARGUMENT...
    local server=$1 name=$2 class=$3 before after log=$state/case.log
    shift 3
    [[ $name =~ $cases ]] || return 0
    before=$(ticks)
    timeout "$seconds" java -Xms256m -Xmx768m -Duser.home="$state" -Drocketmq.client.logRoot="$state/logs" \
        -Djava.io.tmpdir="$state" -cp "$jars/*" "org.apache.rocketmq.example.benchmark.$class" \
        -n 127.0.0.1:$namesrv_port "$@" >"$log" 2>&1 || true
    after=$(ticks)
    python3 "$here/bench/row.py" "$server" "$name" "$log" $((after - before)) \
        "$(awk '/VmRSS/ { print $2 }' "/proc/$broker_pid/status")" >>"$rows"
    tail -n 1 "$rows" >&2
}
all_cases() { # SERVER
    local size threads
    for size in 128 1024; do
        for threads in 1 16 64; do
            run_case "$1" "sync-$size-$threads" Producer -t Bench -s "$size" -w "$threads" -ri 2000
        done
    done
    run_case "$1" batch16-128-16 BatchProducer -t Bench -s 128 -w 16 -b 16 -ri 2000
    run_case "$1" consume-backlog Consumer -t Bench -g "bench-$SECONDS" -w 20 -ri 2000
}
for ((round = 1; round <= rounds; round++)); do
    for server in apache ours; do
        echo "== round $round of $rounds: $server" >&2
        "start_$server"
        all_cases "$server"
        end_servers
    done
done
python3 "$here/bench/table.py" "$rows"
