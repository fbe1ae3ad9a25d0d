#!/usr/bin/env bash
# Apache's servers and ours in turn, on this machine and in this run, under the same loads: the stock
# Java client's own benchmark programs, and rmq bench. Prints one table of medians.
#
#   bench.sh DIRECTORY-OF-OUR-PROGRAMS [DIRECTORY-FOR-RESULTS]
#
# ROUNDS (5) alternations; SECONDS_PER_CASE (12) measured after WARM_UP (8) of each Java case, half
# of both for rmq bench; CASES (a regular expression of case names); FLUSH (ASYNC_FLUSH SYNC_FLUSH);
# BACKLOG (1000000) messages to consume; APACHE_HEAP (2g). The results are rows.jsonl, table.txt,
# table.json and table.md.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd -- "${1:?directory of our programs}" && pwd)
rounds=${ROUNDS:-5} seconds=${SECONDS_PER_CASE:-12} warm_up=${WARM_UP:-8} cases=${CASES:-.}
flushes=${FLUSH:-ASYNC_FLUSH SYNC_FLUSH} backlog=${BACKLOG:-1000000} heap=${APACHE_HEAP:-2g}
namesrv_port=19876 broker_port=20911
export NAMESRV_ADDR=127.0.0.1:$namesrv_port
state=$(mktemp -d)
results=${2:-$state/results}
mkdir -p "$results"
results=$(cd -- "$results" && pwd)
rows=$results/rows.jsonl
: >"$rows"
trap 'end_servers; rm -rf "$state"' EXIT
jars=$("$here/jars.sh" "$here/bench/pom.xml" 5.5.0)
# The Java benchmark programs report the mean of the last ten seconds.
((seconds >= 10)) || { echo "bench.sh: SECONDS_PER_CASE must be at least 10" >&2; exit 2; }

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.3f", b - a }'; }
cpu() { awk '{ sub(/^.*\) /, ""); print ($12 + $13) / 100 }' "/proc/$1/stat" 2>/dev/null || echo 0; }
rss() { awk '/VmRSS/ { print $2 * 1024 }' "/proc/$1/status"; }
# The flags of Apache's runbroker.sh with a heap for this machine, but without AlwaysPreTouch, which
# would only make it larger and slower to start.
apache_flags="-server -Xms$heap -Xmx$heap -XX:+UseG1GC -XX:G1HeapRegionSize=16m -XX:G1ReservePercent=25
    -XX:InitiatingHeapOccupancyPercent=30 -XX:SoftRefLRUPolicyMSPerMB=0 -XX:MaxDirectMemorySize=4g
    -XX:-OmitStackTraceInFastThrow -XX:-UseLargePages"

start_apache() { # FLUSH
    STATE=$state/apache NAMESRV_PORT=$namesrv_port BROKER_PORT=$broker_port \
        BROKER_JAVA_OPTS=$apache_flags BROKER_CONF="flushDiskType=$1" \
        "$here/apache/peer.sh" start >/dev/null
    broker_pid=$(<"$state/apache/broker.pid")
    namesrv_pid=$(<"$state/apache/namesrv.pid")
}
start_ours() { # FLUSH
    mkdir -p "$state/ours"
    "$bin/rocketmq-namesrv" --port $namesrv_port --health-port 0 \
        --set "kvConfigPath=$state/ours/kvConfig.json" >"$state/ours/namesrv.log" 2>&1 &
    namesrv_pid=$!
    printf '%s\n' brokerClusterName=DefaultCluster brokerName=broker-a brokerIP1=127.0.0.1 \
        listenPort=$broker_port "namesrvAddr=$NAMESRV_ADDR" metricsPromExporterPort=25557 \
        "flushDiskType=$1" "storePathRootDir=$state/ours/store" diskMaxUsedSpaceRatio=95 \
        >"$state/ours/broker.conf"
    "$bin/rocketmq-broker" -c "$state/ours/broker.conf" >"$state/ours/broker.log" 2>&1 &
    broker_pid=$!
}
wait_for_first_send() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$bin/rmq" --timeout 1s send FirstSend hello >/dev/null 2>&1; then return 0; fi
        kill -0 "$broker_pid" || break
        sleep 0.05
    done
    cat "$state"/*/broker.log >&2
    say "the broker does not take a message"
    exit 1
}
stop_process() { # PID: asks it to end, prints the seconds that it took
    local began i
    began=$(now)
    kill "$1" 2>/dev/null || true
    for ((i = 0; i < 6000; i++)); do
        # A child of ours that has ended is there until it was waited for.
        [[ $(awk '/^State/ { print $2 }' "/proc/$1/status" 2>/dev/null || true) == [RSDT] ]] || break
        sleep 0.01
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
    since "$began"
}
end_servers() {
    local pid
    for pid in ${broker_pid:-} ${namesrv_pid:-} ${client_pid:-} ${producer_pid:-}; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    broker_pid='' namesrv_pid='' client_pid='' producer_pid=''
    rm -rf "${state:?}/apache" "${state:?}/ours"
}
row() { # A case without figures is missing from its round; the others go on.
    python3 "$here/bench/row.py" "$@" | tee -a "$rows" | sed 's/^/    /' >&2 || say "no figures"
}
is_wanted() { [[ $1 =~ $cases ]]; }

# --- One case each: the broker's processor time is taken over what is measured, without warm-up.

java_case() { # NAME KIND CLASS ARGUMENT...
    local name=$1 kind=$2 class=$3 log=$state/case.log before client_before after client_after began
    shift 3
    is_wanted "$name" || return 0
    sync
    java -Xms256m -Xmx768m -XX:+UseG1GC -Duser.home="$state" -Drocketmq.client.logRoot="$state/logs" \
        -Djava.io.tmpdir="$state" -cp "$jars/*" "org.apache.rocketmq.example.benchmark.$class" \
        -n "$NAMESRV_ADDR" -ri 1000 "$@" >"$log" 2>&1 &
    client_pid=$!
    sleep "$warm_up"
    before=$(cpu "$broker_pid") client_before=$(cpu "$client_pid") began=$(now)
    sleep "$seconds"
    after=$(cpu "$broker_pid") client_after=$(cpu "$client_pid")
    kill -KILL "$client_pid" 2>/dev/null || true
    wait "$client_pid" 2>/dev/null || true
    client_pid=''
    row java "$server" "$name" "$kind" "$log" "$began" "$seconds" \
        "$before" "$after" "$client_before" "$client_after" "$(rss "$broker_pid")"
}
rmq_case() { # NAME ARGUMENT...
    local name=$1 log=$state/case.json before began
    shift
    is_wanted "$name" || return 0
    sync
    before=$(cpu "$broker_pid") began=$(now)
    # What is lost or doubled is in the row; the run goes on.
    "$bin/rmq" -o json bench "$@" >"$log" 2>"$state/case.err" || true
    row rmq "$server" "$name" "$log" "$state/case.err" "$before" "$(cpu "$broker_pid")" \
        "$(since "$began")" "$(rss "$broker_pid")"
}
rmq_load() { # NAME MODE TOPIC ARGUMENT...
    local name=$1 mode=$2 topic=$3
    shift 3
    # The warm-up is a run of its own, so that the processor time is that of what is measured.
    if is_wanted "$name"; then
        "$bin/rmq" -o json bench "$mode" "$topic" "$@" --warm-up 0s --duration $((warm_up / 2))s \
            >/dev/null 2>&1 || true
    fi
    rmq_case "$name" "$mode" "$topic" "$@" --warm-up 0s --duration $((seconds / 2))s
}

# --- All cases, for one server and one kind of flush.

send_cases() { # async|sync
    local size threads
    for size in 128 1024; do
        for threads in 1 16 64; do
            java_case "java-$1-$size-$threads" send Producer -t JavaBench -s $size -w $threads
            rmq_load "rmq-$1-$size-$threads" send RmqBench --size $size --threads $threads
        done
        java_case "java-$1-$size-16-batch16" batch BatchProducer -t JavaBench -s $size -w 16 -b 16
        rmq_load "rmq-$1-$size-16-batch16" send RmqBench --size $size --threads 16 --batch 16
    done
}
receive_cases() {
    if is_wanted java-backlog-128; then
        # Enough for warm-up and measurement at the fastest.
        "$bin/rmq" bench send JavaBacklog --queues 8 --count $((backlog * 6)) --batch 32 >/dev/null 2>&1
    fi
    java_case java-backlog-128 receive Consumer -t JavaBacklog -g "java-backlog-$RANDOM" -w 20
    if is_wanted rmq-backlog-128; then
        "$bin/rmq" bench send RmqBacklog --queues 8 --count "$backlog" --batch 32 >/dev/null 2>&1
    fi
    rmq_case rmq-backlog-128 consume RmqBacklog --count "$backlog" --verify
    if is_wanted java-live-1024; then
        java -Xms256m -Xmx768m -XX:+UseG1GC -Duser.home="$state" -Drocketmq.client.logRoot="$state/logs" \
            -Djava.io.tmpdir="$state" -cp "$jars/*" org.apache.rocketmq.example.benchmark.Producer \
            -n "$NAMESRV_ADDR" -ri 1000 -t JavaLive -s 1024 -w 16 >"$state/live.log" 2>&1 &
        producer_pid=$!
        sleep 3
        java_case java-live-1024 receive Consumer -t JavaLive -g "java-live-$RANDOM" -w 20
        kill -KILL $producer_pid 2>/dev/null || true
        wait $producer_pid 2>/dev/null || true
        producer_pid=''
    fi
    rmq_load rmq-live-1024 mixed RmqLive --queues 8 --size 1024 --threads 16
    # Latencies can be compared only under the same load: a rate that both can keep up with.
    rmq_load rmq-live-1024-rate2000 mixed RmqLive --size 1024 --rate 2000
}
serve() { # SERVER FLUSH
    local began first flush=${2%_FLUSH} stopped
    server=$1
    began=$(now)
    "start_$server" "$2"
    wait_for_first_send
    first=$(since "$began")
    say "warming the server up"
    "$bin/rmq" bench send WarmUp --threads 16 --size 256 --warm-up 0s --duration "${warm_up}s" \
        >/dev/null 2>&1 || true
    send_cases "${flush,,}"
    [[ $flush == SYNC ]] || receive_cases
    sleep 2 # Without load, as when a pod is replaced.
    stopped=$(stop_process "$broker_pid")
    row process "$server" "$first" "$stopped"
    broker_pid=''
    end_servers
}

for ((round = 1; round <= rounds; round++)); do
    for flush in $flushes; do
        for server in apache ours; do
            say "round $round of $rounds: $server, $flush"
            serve "$server" "$flush"
        done
    done
done
python3 "$here/bench/table.py" "$rows" "$results"
say "written to $results"
