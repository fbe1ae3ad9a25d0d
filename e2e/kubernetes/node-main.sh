#!/usr/bin/env bash
# Process 1 of a node; started by node.sh in the node's own namespaces.
# Starts again what ends of containerd, kubelet and kube-proxy.
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

name=$1
node=$K8S_HOME/nodes/$name
[[ $$ == 1 ]] || die "not in a process-id namespace: start nodes with node.sh"
hostname "$name"

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/containerd /run/netns /run/lock
mount --bind "$node/cni/state" /var/lib/cni
mount --bind "$node/containers-log" /var/log/containers
mount --bind "$node/kubelet" "$node/kubelet"
mount --make-rshared "$node/kubelet"
rm -rf "$node/cni/state/ipam" "$node/cni/state/results" # a node starts without pods, like after a reboot
ip -o link show | awk -F': ' '$2 ~ /^veth/ { sub(/@.*/, "", $2); print $2 }' | xargs -rn1 ip link delete 2>/dev/null || true

declare -A pid command
command[containerd]="containerd --config $node/containerd.toml"
command[kubelet]="$K8S_HOME/conf/kubelet --config $node/kubelet.yaml --kubeconfig $node/kubeconfig --hostname-override $name --node-ip $(node_ip "${name#n}") --root-dir $node/kubelet --node-labels topology.kubernetes.io/zone=zone-${name#n},topology.kubernetes.io/region=local"
command[kube-proxy]="$K8S_HOME/conf/kube-proxy --config $node/proxy.yaml"

alive() { [[ -n ${pid[$1]:-} ]] && kill -0 "${pid[$1]}" 2>/dev/null; }
run() {
    printf -- '--- %s start: %s\n' "$(date -u +%FT%TZ)" "${command[$1]}" >>"$LOG/$name-$1.log"
    # shellcheck disable=SC2086
    ${command[$1]} >>"$LOG/$name-$1.log" 2>&1 </dev/null &
    pid[$1]=$!
}

run containerd
for ((i = 0; i < 240; i++)); do
    ctr version >/dev/null 2>&1 && break
    alive containerd || { tail -n 15 "$LOG/$name-containerd.log" >&2; die "containerd ended: $LOG/$name-containerd.log"; }
    sleep 0.25
done
for archive in "$K8S_BIN/images/pause.tar" "$K8S_HOME"/images/*.tar; do
    [[ -e $archive && ! $node/loaded -nt $archive ]] || continue
    ctr -n k8s.io images import "$archive"
done
touch "$node/loaded"

while :; do
    for part in containerd kubelet kube-proxy; do
        if [[ -e $node/hold-$part ]]; then
            if alive "$part"; then kill "${pid[$part]}" 2>/dev/null || true; fi
        elif ! alive "$part"; then
            [[ -z ${pid[$part]:-} ]] || say "$part ended; starting it again"
            run "$part"
        fi
    done
    sleep 1 & wait $! || true
done
