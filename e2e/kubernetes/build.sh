#!/usr/bin/env bash
# Builds the programs of the cluster from Go modules, with the versions that
# programs/*/go.mod name, unless they are built already:
#
#   rmqkube   etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
#             kube-proxy, kubelet, kubectl and the volume provisioner in one
#   coredns   CoreDNS with the plugins for cluster DNS
#   images/pause.tar
#
# They are kept outside the source tree, in a directory named after a hash of what
# they are built from. Prints that directory. About 10 minutes on two idle cores
# from an empty Go cache.
K8S_HOME=${K8S_HOME:-${TMPDIR:-/tmp}} # building has no state there
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == --key ]]; then programs_key; exit; fi
if programs_built; then echo "$K8S_BIN"; exit; fi

jobs=${K8S_BUILD_JOBS:-$(nproc)}
for tool in go gcc python3 flock; do
    command -v "$tool" >/dev/null || die "no '$tool' here, and Kubernetes must be built: install it (Go 1.25 or newer from https://go.dev/dl)"
done
mkdir -p "$K8S_BIN/images"
exec 9>"$K8S_BIN/lock"
flock 9 # another build of the same may be under way
if programs_built; then echo "$K8S_BIN"; exit; fi

say "building Kubernetes $KUBERNETES_VERSION and CoreDNS, once: about 10 minutes on two idle cores; kept in $K8S_BIN"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

ticking() { # PROGRAM: a line a minute, so that nobody thinks it hangs
    local minutes=0
    while sleep 60; do
        minutes=$((minutes + 1))
        say "still building $1 ($minutes min)"
    done
}
one() { # DIRECTORY PROGRAM FLAGS
    local began=$SECONDS ticker rc=0
    [[ ! -x $K8S_BIN/$2 ]] || return 0
    ticking "$2" 9>&- &
    ticker=$!
    (cd "$KIT/programs/$1" && nice go build -p "$jobs" -trimpath -buildvcs=false -ldflags "$3" -o "$K8S_BIN/$2.new" .) >&2 || rc=$?
    kill "$ticker" 2>/dev/null || true
    ((rc == 0)) || die "building $2 failed"
    mv "$K8S_BIN/$2.new" "$K8S_BIN/$2"
    say "$2: $(($(stat -c %s "$K8S_BIN/$2") >> 20)) MiB in $((SECONDS - began))s"
}
one kube rmqkube "$(version_flags)"
one coredns coredns "-s -w"
gcc -static -Os -s -o "$K8S_BIN/pause" "$KIT/programs/pause/pause.c"
"$KIT/../../deploy/images/mkimage.py" --name "$PAUSE" --out "$K8S_BIN/images/pause.tar" --add "$K8S_BIN/pause:/pause" --entrypoint /pause >&2
echo "$K8S_BIN"
