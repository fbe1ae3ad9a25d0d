#!/usr/bin/env bash
# Loads image archives (OCI layout or docker-archive) into every node that runs.
#
#   load.sh IMAGE.tar...
#
# Use imagePullPolicy IfNotPresent or Never, and a tag other than "latest".
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

(($# >= 1)) || die "usage: ${0##*/} IMAGE.tar..."
need_root
nodes=()
for name in $(node_names); do
    if pid_of "node-$name" >/dev/null; then nodes+=("$name"); fi
done
((${#nodes[@]} > 0)) || die "no node is running"
mkdir -p "$K8S_HOME/images"
for archive in "$@"; do
    [[ -r $archive ]] || die "cannot read $archive"
    cp -- "$archive" "$K8S_HOME/images/" # a node that starts later loads it from there
    for name in "${nodes[@]}"; do
        "$KIT/node.sh" exec "$name" ctr -n k8s.io images import "$(realpath -- "$archive")" >/dev/null
        touch "$K8S_HOME/nodes/$name/loaded"
    done
done
