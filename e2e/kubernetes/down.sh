#!/usr/bin/env bash
# Ends the cluster that up.sh started with the same K8S_HOME: its processes (by
# their pid files, and those in its network namespaces), mounts, namespaces,
# links and cgroups. With --purge its state goes too (keys, etcd's data, volumes,
# logs); otherwise up.sh resumes with it.
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

need_root
need_owner
for name in $(node_names); do halt "node-$name" 5 KILL; done
for part in coredns rmq-provisioner kube-proxy kube-scheduler kube-controller-manager kube-apiserver etcd; do
    if [[ -e $RUN/$part.pid ]]; then halt "$part" 10; fi
done

# Nodes whose state directory somebody removed are known by their namespaces.
shopt -s nullglob
spaces=(/run/netns/"$K8S_NAME"-cp /run/netns/"$K8S_NAME"-n{1..15})
for space in "${spaces[@]}"; do
    [[ -e $space ]] || continue
    ip netns pids "${space##*/}" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
done

# Mounts that the nodes had made are gone with their namespaces; these are ours.
awk -v top="$K8S_HOME/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r point; do
    umount "$point" 2>/dev/null || umount -l "$point" || say "cannot unmount $point"
done
for space in "${spaces[@]}"; do
    name=${space##*/}
    if [[ -e /sys/class/net/$name ]]; then ip link delete "$name"; fi
    if [[ -e $space ]]; then ip netns delete "$name"; fi
done
if [[ -e /sys/class/net/$BRIDGE ]]; then ip link delete "$BRIDGE"; fi
for top in /sys/fs/cgroup/*"$CGROUP" /sys/fs/cgroup"$CGROUP"; do
    [[ -d $top ]] || continue
    for ((i = 0; i < 20; i++)); do
        find "$top" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.25
    done
    [[ ! -d $top ]] || say "cgroup $top is still in use"
done
rm -f "$OWNER"
if [[ ${1:-} == --purge ]]; then
    rm -rf "${K8S_HOME:?}"/{pki,log,run,etcd,nodes,conf,volumes,images,admin.kubeconfig,apt.log}
    rmdir "$K8S_HOME" 2>/dev/null || true
fi
say "cluster $K8S_NAME ended"
