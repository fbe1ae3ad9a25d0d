#!/usr/bin/env bash
# Acts on one node of the cluster.
#
#   node.sh start n1        starts the node (or what of it is missing)
#   node.sh kill n1         power failure: every process of the node dies at once
#   node.sh cut n1          network failure: the node runs on, cut off
#   node.sh join n1         ends the network failure
#   node.sh hold n1 PART    ends kubelet, kube-proxy or containerd and keeps it down
#   node.sh free n1 PART    lets it run again
#   node.sh exec n1 CMD...  runs a command in the node's namespaces
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

(($# >= 2)) || die "usage: ${0##*/} start|kill|cut|join|hold|free|exec NODE [ARGUMENT...]"
action=$1 name=$2
shift 2
n=$(node_number "$name")
ns=$K8S_NAME-$name
node=$K8S_HOME/nodes/$name
[[ -d $node ]] || die "no node $name in $K8S_HOME"
need_root

cgroup_controllers() { awk -F: '$2 != "" && $2 !~ /^name=/ { print $2 } $2 == "name=systemd" { print "systemd" }' /proc/self/cgroup; }

make_cgroups() {
    local controller dir file
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then # version 2
        for dir in "$CGROUP" "$CGROUP/$name"; do
            mkdir -p "/sys/fs/cgroup$dir"
            for controller in cpuset cpu io memory pids hugetlb; do
                echo "+$controller" >"/sys/fs/cgroup$(dirname "$dir")/cgroup.subtree_control" 2>/dev/null || true
            done
        done
        echo "$K8S_MEMORY" >"/sys/fs/cgroup$CGROUP/memory.max"
        return
    fi
    for controller in $(cgroup_controllers); do
        for dir in "$CGROUP" "$CGROUP/$name"; do
            [[ -d /sys/fs/cgroup/$controller ]] || continue
            mkdir -p "/sys/fs/cgroup/$controller$dir"
            [[ $controller == cpuset ]] || continue
            for file in cpuset.cpus cpuset.mems; do
                cat "/sys/fs/cgroup/cpuset$(dirname "$dir")/$file" >"/sys/fs/cgroup/cpuset$dir/$file"
            done
        done
    done
    echo "$K8S_MEMORY" >"/sys/fs/cgroup/memory$CGROUP/memory.limit_in_bytes"
}

start_node() {
    if [[ ! -e /run/netns/$ns ]]; then ip netns add "$ns"; fi
    if [[ ! -e /sys/class/net/$ns ]]; then
        ip link add "$ns" type veth peer name eth0 netns "$ns"
        ip link set "$ns" master "$BRIDGE"
    fi
    ip link set "$ns" up
    ip -n "$ns" link set lo up
    ip -n "$ns" addr replace "$(node_ip "$n")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip netns exec "$ns" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
    ip -n "$ns" link show svc >/dev/null 2>&1 || ip -n "$ns" link add svc type bridge
    ip -n "$ns" link set svc up
    ip -n "$ns" route replace "$SERVICE_CIDR" dev svc
    ip -n "$CP" route replace "$(node_pods "$n")" via "$(node_ip "$n")"
    ip route replace "$(node_pods "$n")" via "$(node_ip "$n")"
    make_cgroups
    mkdir -p /var/lib/cni /var/log/containers
    rm -f "$node"/hold-*
    # --kill-child and the process-id namespace: with the process of the pid
    # file, everything on the node ends, its containers and mounts with it.
    launch "node-$name" nsenter --net="/run/netns/$ns" -- \
        unshare --mount --propagation slave --pid --fork --kill-child --mount-proc --uts -- \
        bash "$KIT/node-main.sh" "$name"
}

node_init() { # the pid of the node's process 1, as seen from here
    local pid
    pid=$(pid_of "node-$name") || die "node $name is not running"
    pid=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    pid=${pid%% *}
    [[ -n $pid ]] || die "node $name is not running"
    echo "$pid"
}

case $action in
start) start_node ;;
kill) halt "node-$name" 5 KILL ;;
cut) ip link set "$ns" down ;;
join) ip link set "$ns" up ;;
hold) [[ ${1:-} =~ ^(kubelet|kube-proxy|containerd)$ ]] || die "hold what?"; touch "$node/hold-$1" ;;
free) rm -f "$node/hold-${1:?which part?}" ;;
exec) exec nsenter --target "$(node_init)" --mount --net --pid --uts -- "$@" ;;
*) die "unknown action $action" ;;
esac
