#!/usr/bin/env bash
# Apache's own name server and broker, to check the tests themselves against.
#
#   peer.sh start      starts both; prints the name server's address
#   peer.sh stop
#   peer.sh kill       kills the broker (SIGKILL) and stops the name server
#
# STATE is their directory (needed), NAMESRV_PORT (19876) and BROKER_PORT (20911)
# their ports, CLUSTER and BROKER_NAME the broker's names, RMQ_VERSION the release
# (5.5.0). BROKER_CONF has more lines for broker.conf, BROKER_JAVA_OPTS other flags
# for the broker's Java.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
: "${STATE:?set STATE to a directory}"
namesrv_port=${NAMESRV_PORT:-19876} broker_port=${BROKER_PORT:-20911}
cluster=${CLUSTER:-DefaultCluster} broker_name=${BROKER_NAME:-broker-a}

spawn() { # NAME FLAGS CLASS ARGUMENT...
    local name=$1 flags
    read -r -d '' -a flags <<<"$2" || true
    shift 2
    setsid nohup java "${flags[@]}" \
        -Drocketmq.home.dir="$STATE" -Duser.home="$STATE" -Djava.io.tmpdir="$STATE" \
        --add-exports java.base/jdk.internal.ref=ALL-UNNAMED --add-opens java.base/java.nio=ALL-UNNAMED \
        --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/java.lang=ALL-UNNAMED \
        -cp "$STATE/conf:$jars/*" "$@" >"$STATE/$name.log" 2>&1 </dev/null &
    echo $! >"$STATE/$name.pid"
}
wait_port() { # PORT
    local i
    for ((i = 0; i < 360; i++)); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.25
    done
    echo "peer.sh: port $1 is not open after 90 s; logs are in $STATE" >&2
    return 1
}
stop() { # NAME [SIGNAL]
    local pid i
    [[ -s $STATE/$1.pid ]] || return 0
    pid=$(<"$STATE/$1.pid")
    kill -"${2:-TERM}" "$pid" 2>/dev/null || true
    for ((i = 0; i < 240; i++)); do # a broker takes 18 s on an idle machine
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.25
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$STATE/$1.pid"
}

case ${1:-} in
start)
    jars=$("$here/../jars.sh" "$here/pom.xml" "${RMQ_VERSION:-5.5.0}")
    mkdir -p "$STATE/conf"
    # 4.x does not start without them.
    for name in broker namesrv; do echo '<configuration/>' >"$STATE/conf/logback_$name.xml"; done
    printf '%s\n' "listenPort=$namesrv_port" "kvConfigPath=$STATE/kvConfig.json" \
        "configStorePath=$STATE/namesrv.properties" >"$STATE/conf/namesrv.conf"
    printf '%s\n' "brokerClusterName=$cluster" "brokerName=$broker_name" brokerId=0 \
        brokerIP1=127.0.0.1 "listenPort=$broker_port" "namesrvAddr=127.0.0.1:$namesrv_port" \
        traceTopicEnable=true recallMessageEnable=true enablePropertyFilter=true diskMaxUsedSpaceRatio=95 \
        "storePathRootDir=$STATE/store" "storePathCommitLog=$STATE/store/commitlog" \
        ${BROKER_CONF:+"$BROKER_CONF"} >"$STATE/conf/broker.conf"
    small="-XX:+UseSerialGC -Xms256m -XX:MaxDirectMemorySize=1g"
    spawn namesrv "$small -Xmx512m" org.apache.rocketmq.namesrv.NamesrvStartup -c "$STATE/conf/namesrv.conf"
    wait_port "$namesrv_port"
    spawn broker "${BROKER_JAVA_OPTS:-$small -Xmx2g}" org.apache.rocketmq.broker.BrokerStartup -c "$STATE/conf/broker.conf"
    wait_port "$broker_port"
    echo "127.0.0.1:$namesrv_port"
    ;;
stop)
    stop broker
    stop namesrv
    ;;
kill)
    stop broker KILL
    stop namesrv KILL
    ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
