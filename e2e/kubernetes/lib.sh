# Shared by the scripts of this directory; sourced, not run. Every setting can be
# given in the environment, but must then be the same for each script.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

KIT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

[[ -n ${K8S_HOME:-} ]] || die "set K8S_HOME to a directory for the cluster's state (certificates, etcd, volumes, logs)"
mkdir -p -- "$K8S_HOME"
K8S_HOME=$(cd -- "$K8S_HOME" && pwd)
export K8S_HOME
K8S_NAME=${K8S_NAME:-rmq}                  # prefix of namespaces and links (up to 7 characters)
K8S_NET=${K8S_NET:-10.77}                  # two octets; nodes use .0, pods .16 and up, Services .128 and up
K8S_DOMAIN=${K8S_DOMAIN:-cluster.local}
K8S_MEMORY=${K8S_MEMORY:-12G}              # limit on all pods together
K8S_NODE_GRACE=${K8S_NODE_GRACE:-20s}      # a silent node counts as lost after this
K8S_PROXY_MODE=${K8S_PROXY_MODE:-iptables} # or nftables
[[ $K8S_NAME =~ ^[a-z]{1,7}$ ]] || die "K8S_NAME must be 1 to 7 small letters, not '$K8S_NAME'"

PKI=$K8S_HOME/pki
LOG=$K8S_HOME/log
RUN=$K8S_HOME/run
VOLUMES=$K8S_HOME/volumes
ADMIN=$K8S_HOME/admin.kubeconfig
BRIDGE=${K8S_NAME}-br
CP=${K8S_NAME}-cp
CGROUP=/${K8S_NAME}-k8s
OWNER=/run/rocketmq-kubernetes/$K8S_NAME   # says which K8S_HOME the running cluster of this name has
HOST_IP=$K8S_NET.0.1
CP_IP=$K8S_NET.0.2
POD_CIDR=$K8S_NET.16.0/20      # one /24 a node: $K8S_NET.<16+n>.0/24, n = 1..15
SERVICE_CIDR=$K8S_NET.128.0/17
API_SERVICE_IP=$K8S_NET.128.1
DNS_SERVICE_IP=$K8S_NET.128.10
PAUSE=rmq.test/pause:1

# --- programs --------------------------------------------------------------
# The flags are part of what a program is built from, so they are part of its key.
KUBERNETES_VERSION=$(sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$|\1|p' "$KIT/programs/kube/go.mod")
[[ -n $KUBERNETES_VERSION ]] || die "no version of k8s.io/kubernetes in programs/kube/go.mod"
version_flags() {
    local major minor package
    IFS=. read -r major minor _ <<<"${KUBERNETES_VERSION#v}"
    printf -- '-s -w'
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf ' -X %s.gitVersion=%s' "$package" "$KUBERNETES_VERSION"
        printf ' -X %s.gitMajor=%s -X %s.gitMinor=%s' "$package" "$major" "$package" "$minor"
        printf ' -X %s.gitTreeState=clean -X %s.buildDate=1970-01-01T00:00:00Z' "$package" "$package"
        printf ' -X %s.gitCommit=0000000000000000000000000000000000000000' "$package"
    done
}
programs_key() { # names one state of the sources, flags and machine
    {
        uname -m
        version_flags
        cd "$KIT" && find programs -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c1-16
}
K8S_BIN=${K8S_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-rs/kubernetes/$(programs_key)}
export K8S_BIN

programs_built() { [[ -x $K8S_BIN/rmqkube && -x $K8S_BIN/coredns && -r $K8S_BIN/images/pause.tar ]]; }

# --- this machine ----------------------------------------------------------
need_root() { [[ $(id -u) == 0 ]] || die "must run as root (it makes namespaces, cgroups and mounts)"; }

declare -A PACKAGE_OF=(
    [containerd]=containerd [ctr]=containerd [runc]=runc [iptables]=iptables [nft]=nftables
    [conntrack]=conntrack [ip]=iproute2 [sysctl]=procps [openssl]=openssl [mkfs.xfs]=xfsprogs
    [xfs_growfs]=xfsprogs [losetup]=mount [nsenter]=util-linux [unshare]=util-linux
    [setsid]=util-linux [mount]=mount [awk]=mawk [/usr/lib/cni/ptp]=containernetworking-plugins
)
need_packages() { # installs from the distribution what is not here
    local tool missing=()
    for tool in "${!PACKAGE_OF[@]}"; do
        command -v "$tool" >/dev/null || missing+=("${PACKAGE_OF[$tool]}")
    done
    ((${#missing[@]} > 0)) || return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    command -v apt-get >/dev/null || die "missing packages: ${missing[*]}"
    say "installing packages: ${missing[*]}"
    local log=$K8S_HOME/apt.log
    {
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
    } >"$log" 2>&1 || { tail -n 15 "$log" >&2; die "installing ${missing[*]} failed: $log"; }
}

# Says no if a cluster of this name was started with another state directory.
need_owner() {
    local owner
    if [[ -s $OWNER ]]; then
        owner=$(<"$OWNER")
        [[ $owner == "$K8S_HOME" ]] ||
            die "a cluster named $K8S_NAME has its state in $owner: end it with 'K8S_HOME=$owner K8S_NAME=$K8S_NAME $KIT/down.sh', or set K8S_NAME and K8S_NET to others"
    elif [[ -e /sys/class/net/$BRIDGE || -e /run/netns/$CP ]]; then
        die "$BRIDGE or $CP exists here but is not from these scripts: set K8S_NAME to another name"
    fi
}

# --- processes -------------------------------------------------------------
node_ip() { echo "$K8S_NET.0.$((10 + $1))"; }
node_pods() { echo "$K8S_NET.$((16 + $1)).0/24"; }

# A pid file holds "PID STARTTIME", so that a pid used again by another process
# is never taken for ours.
started_at() { awk '{ sub(/^.*\) /, ""); print $20 }' "/proc/$1/stat" 2>/dev/null; }

pid_of() { # NAME: prints the pid if the process that we started is alive
    local pid born
    [[ -s $RUN/$1.pid ]] || return 1
    read -r pid born <"$RUN/$1.pid" || return 1
    [[ -n $born && $(started_at "$pid") == "$born" ]] || return 1
    [[ $(awk '{ sub(/^.*\) /, ""); print $1 }' "/proc/$pid/stat" 2>/dev/null) != Z ]] || return 1
    echo "$pid"
}

launch() { # NAME COMMAND...: in the background, logged to $LOG/NAME.log, unless it runs already
    local name=$1 pid
    shift
    if pid_of "$name" >/dev/null; then return 0; fi
    printf -- '--- %s start: %s\n' "$(date -u +%FT%TZ)" "$*" >>"$LOG/$name.log"
    setsid "$@" >>"$LOG/$name.log" 2>&1 </dev/null &
    pid=$!
    echo "$pid $(started_at "$pid")" >"$RUN/$name.pid"
    disown "$pid" 2>/dev/null || true
}

halt() { # NAME [SECONDS [SIGNAL]]: ends the process that we started, by its pid
    local name=$1 patience=${2:-10} signal=${3:-TERM} pid end
    if pid=$(pid_of "$name"); then
        kill -s "$signal" "$pid" 2>/dev/null || true
        end=$((SECONDS + patience))
        while pid_of "$name" >/dev/null && ((SECONDS < end)); do sleep 0.1; done
        if pid_of "$name" >/dev/null; then
            kill -KILL "$pid" 2>/dev/null || true
            sleep 0.2
        fi
    fi
    rm -f "$RUN/$name.pid"
}

wait_for() { # SECONDS WHAT LOGNAME COMMAND...
    local limit=$1 what=$2 log=$3 end
    shift 3
    end=$((SECONDS + limit))
    until "$@" >/dev/null 2>&1; do
        if [[ -n $log && -e $RUN/$log.pid ]] && ! pid_of "$log" >/dev/null; then
            tail -n 15 "$LOG/$log.log" >&2 || true
            die "$log ended while waiting for $what; its log: $LOG/$log.log"
        fi
        if ((SECONDS >= end)); then
            [[ -n $log ]] && tail -n 15 "$LOG/$log.log" >&2
            die "no $what after ${limit}s${log:+; log: $LOG/$log.log}"
        fi
        sleep 0.25
    done
}

in_cp() { nsenter --net="/run/netns/$CP" -- "$@"; }
kube() { "$K8S_BIN/rmqkube" kubectl --kubeconfig "$ADMIN" "$@"; }

# Whether an HTTP endpoint of 127.0.0.1 in a network namespace answers 200.
healthy() { # NAMESPACE PORT PATH
    # shellcheck disable=SC2016
    nsenter --net="/run/netns/$1" -- bash -c '
        exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET %s HTTP/1.0\r\n\r\n" "$1" >&3 && grep -q "200 OK" <&3' "$2" "$3"
}

node_names() { # every node that has a state directory, in order
    local dir
    for dir in "$K8S_HOME"/nodes/n*/; do [[ -d $dir ]] && basename "$dir"; done | sort -V
}
node_number() { # NAME
    [[ $1 =~ ^n([1-9]|1[0-5])$ ]] || die "no such node name: $1 (n1 to n15)"
    echo "${BASH_REMATCH[1]}"
}
