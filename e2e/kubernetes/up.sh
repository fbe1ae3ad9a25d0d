#!/usr/bin/env bash
# Brings up a real Kubernetes cluster on this machine: the control plane as
# processes in one network namespace, each node in namespaces of its own.
# Safe to run again: only what is missing or stopped is started.
#
#   K8S_HOME=DIRECTORY K8S_NODES=3 ./up.sh [IMAGE.tar...]
#
# Builds the programs first if they are not built (about 10 minutes, once), and
# installs missing distribution packages. Prints the path of the administrator's
# kubeconfig on standard output.
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

K8S_NODES=${K8S_NODES:-1}

need_root
[[ $K8S_NODES =~ ^([0-9]|1[0-5])$ ]] || die "K8S_NODES must be 0 to 15"
[[ -d /sys/fs/cgroup/memory || -f /sys/fs/cgroup/cgroup.controllers ]] || die "no cgroup file system at /sys/fs/cgroup"
need_owner
need_packages
if [[ ! -e /sys/class/net/$BRIDGE ]]; then
    taken=$(ip -4 route show to match "$HOST_IP" | grep -v '^default' || true)
    [[ -z $taken ]] || die "the network $K8S_NET.0.0/16 is in use here ($taken): set K8S_NET to two other octets"
fi
"$KIT/build.sh" >/dev/null

mkdir -p "$PKI" "$LOG" "$RUN" "$VOLUMES" "$K8S_HOME/etcd" "$K8S_HOME/nodes" "$K8S_HOME/conf"
chmod 711 "$K8S_HOME"
chmod 700 "$PKI"
mkdir -p "${OWNER%/*}"
echo "$K8S_HOME" >"$OWNER"
began=$SECONDS

# --- names -----------------------------------------------------------------
for part in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl rmq-provisioner; do
    ln -sfn "$K8S_BIN/rmqkube" "$K8S_HOME/conf/$part"
done
part() { echo "$K8S_HOME/conf/$1"; }
put() { # FILE: writes standard input there if that differs (kube-proxy ends when its file is written)
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# --- keys ------------------------------------------------------------------
authority() { # NAME COMMON_NAME
    [[ -s $PKI/$1.crt ]] && return
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 3650 \
        -subj "/CN=$2" -keyout "$PKI/$1.key" -out "$PKI/$1.crt" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
}
certificate() { # NAME AUTHORITY SUBJECT [SANS]
    [[ -s $PKI/$1.crt ]] && return
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -subj "$3" \
        -keyout "$PKI/$1.key" -out "$PKI/$1.csr" 2>/dev/null
    {
        echo 'basicConstraints=critical,CA:FALSE'
        echo 'keyUsage=critical,digitalSignature,keyEncipherment'
        echo 'extendedKeyUsage=serverAuth,clientAuth'
        [[ -z ${4:-} ]] || echo "subjectAltName=$4"
    } >"$PKI/$1.ext"
    openssl x509 -req -sha256 -days 3650 -in "$PKI/$1.csr" -CA "$PKI/$2.crt" -CAkey "$PKI/$2.key" \
        -set_serial "0x$(openssl rand -hex 15)" -extfile "$PKI/$1.ext" -out "$PKI/$1.crt.new" 2>/dev/null
    mv "$PKI/$1.crt.new" "$PKI/$1.crt"
    rm -f "$PKI/$1.csr" "$PKI/$1.ext"
}
kubeconfig() { # FILE CERTIFICATE
    [[ -s $1 ]] && return
    cat >"$1.new" <<YAML
apiVersion: v1
kind: Config
current-context: $K8S_NAME
clusters:
- name: $K8S_NAME
  cluster: {server: "https://$CP_IP:6443", certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")}
users:
- name: user
  user: {client-certificate-data: $(base64 -w0 <"$PKI/$2.crt"), client-key-data: $(base64 -w0 <"$PKI/$2.key")}
contexts:
- name: $K8S_NAME
  context: {cluster: $K8S_NAME, user: user}
YAML
    chmod 600 "$1.new"
    mv "$1.new" "$1"
}

authority ca "$K8S_NAME-ca"
authority front-proxy-ca "$K8S_NAME-front-proxy-ca"
[[ -s $PKI/sa.key ]] || openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/sa.key"
[[ -s $PKI/sa.pub ]] || openssl ec -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null
certificate apiserver ca /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.$K8S_DOMAIN,DNS:localhost,IP:127.0.0.1,IP:$CP_IP,IP:$API_SERVICE_IP"
certificate apiserver-kubelet ca /O=system:masters/CN=kube-apiserver-kubelet-client
certificate front-proxy front-proxy-ca /CN=front-proxy-client
certificate admin ca /O=system:masters/CN=admin
certificate controller-manager ca /CN=system:kube-controller-manager
certificate scheduler ca /CN=system:kube-scheduler
certificate proxy ca /CN=system:kube-proxy
certificate coredns ca /CN=system:coredns
certificate provisioner ca /CN=rmq-provisioner
kubeconfig "$ADMIN" admin
for user in controller-manager scheduler proxy coredns provisioner; do
    kubeconfig "$K8S_HOME/conf/$user.kubeconfig" "$user"
done

# --- network ---------------------------------------------------------------
# Nothing here has a way out of the machine: no default route is set in any of
# the namespaces, and the host neither forwards nor masquerades for them.
if [[ ! -e /run/netns/$CP ]]; then ip netns add "$CP"; fi
if [[ ! -e /sys/class/net/$BRIDGE ]]; then
    ip link add "$BRIDGE" type bridge
    ip addr add "$HOST_IP/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
fi
plug() { # NAMESPACE LINK ADDRESS: joins a namespace to the bridge
    if [[ ! -e /sys/class/net/$2 ]]; then
        ip link add "$2" type veth peer name eth0 netns "$1"
        ip link set "$2" master "$BRIDGE" up
    fi
    ip -n "$1" link set lo up
    ip -n "$1" addr replace "$3/24" dev eth0
    ip -n "$1" link set eth0 up
    ip netns exec "$1" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
}
plug "$CP" "$CP" "$CP_IP"
ip route replace "$SERVICE_CIDR" via "$CP_IP"
# Without a route of its own a Service address would be refused before the
# rules of kube-proxy see it; what they don't catch ends at this link.
ip -n "$CP" link show svc >/dev/null 2>&1 || ip -n "$CP" link add svc type bridge
ip -n "$CP" link set svc up
ip -n "$CP" route replace "$SERVICE_CIDR" dev svc

# --- volumes ---------------------------------------------------------------
if ! mountpoint -q "$VOLUMES"; then
    mount --bind "$VOLUMES" "$VOLUMES"
    mount --make-shared "$VOLUMES"
fi
for image in "$VOLUMES"/*/*.img; do
    if [[ -e $image ]] && ! mountpoint -q "${image%.img}"; then mount -o loop "$image" "${image%.img}"; fi
done

# --- control plane ---------------------------------------------------------
# What programs of the tested namespace ask of the API server, for the tests to count.
put "$K8S_HOME/conf/audit.yaml" <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:rocketmq-system"]}
- {level: None}
YAML
say "control plane in namespace $CP, log files in $LOG"
in_ns=(nsenter "--net=/run/netns/$CP" --)
launch etcd "${in_ns[@]}" "$(part etcd)" --name "$K8S_NAME" --data-dir "$K8S_HOME/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster "$K8S_NAME=http://127.0.0.1:2380" --auto-compaction-retention 10m --log-level warn
launch kube-apiserver "${in_ns[@]}" "$(part kube-apiserver)" \
    --etcd-servers http://127.0.0.1:2379 \
    --bind-address "$CP_IP" --advertise-address "$CP_IP" --secure-port 6443 \
    --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" \
    --client-ca-file "$PKI/ca.crt" --authorization-mode Node,RBAC \
    --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --service-cluster-ip-range "$SERVICE_CIDR" \
    --service-account-issuer "https://kubernetes.default.svc.$K8S_DOMAIN" \
    --service-account-key-file "$PKI/sa.pub" --service-account-signing-key-file "$PKI/sa.key" \
    --kubelet-certificate-authority "$PKI/ca.crt" \
    --kubelet-client-certificate "$PKI/apiserver-kubelet.crt" --kubelet-client-key "$PKI/apiserver-kubelet.key" \
    --kubelet-preferred-address-types InternalIP \
    --requestheader-client-ca-file "$PKI/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$PKI/front-proxy.crt" --proxy-client-key-file "$PKI/front-proxy.key" \
    --audit-policy-file "$K8S_HOME/conf/audit.yaml" --audit-log-path "$LOG/audit.log" \
    --audit-log-maxsize 100 --audit-log-maxbackup 1
wait_for 120 "ready API server" kube-apiserver kube get --raw /readyz
say "API server ready"
launch kube-controller-manager "${in_ns[@]}" "$(part kube-controller-manager)" \
    --kubeconfig "$K8S_HOME/conf/controller-manager.kubeconfig" --leader-elect=false --bind-address 127.0.0.1 \
    --use-service-account-credentials --service-account-private-key-file "$PKI/sa.key" --root-ca-file "$PKI/ca.crt" \
    --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key" \
    --cluster-cidr "$POD_CIDR" --service-cluster-ip-range "$SERVICE_CIDR" \
    --node-monitor-grace-period "$K8S_NODE_GRACE"
launch kube-scheduler "${in_ns[@]}" "$(part kube-scheduler)" \
    --kubeconfig "$K8S_HOME/conf/scheduler.kubeconfig" --leader-elect=false --bind-address 127.0.0.1
proxy_conf() { # FILE NODE [MORE]
    put "$1" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $K8S_PROXY_MODE
hostnameOverride: $2
${3:-bindAddress: 0.0.0.0}
clusterCIDR: $POD_CIDR
clientConnection: {kubeconfig: $K8S_HOME/conf/proxy.kubeconfig}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 200ms}
nftables: {minSyncPeriod: 200ms}
YAML
}
launch rmq-provisioner "${in_ns[@]}" "$(part rmq-provisioner)" \
    -kubeconfig "$K8S_HOME/conf/provisioner.kubeconfig" -dir "$VOLUMES"
put "$K8S_HOME/conf/Corefile" <<CORE
.:53 {
    bind $CP_IP
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    cache 5
    loadbalance
    kubernetes $K8S_DOMAIN in-addr.arpa ip6.arpa {
        kubeconfig $K8S_HOME/conf/coredns.kubeconfig
        pods insecure
        ttl 5
    }
    template ANY ANY . {
        rcode NXDOMAIN
    }
}
CORE
kube apply --server-side --force-conflicts -f - >>"$LOG/setup.log" 2>&1 <<YAML || die "applying the cluster's own objects failed: $LOG/setup.log"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rmq-provisioner}
rules:
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [persistentvolumeclaims, nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [persistentvolumeclaims/status], verbs: [patch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rmq-provisioner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rmq-provisioner}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: rmq-provisioner}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rmq.test/local
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local-image}
provisioner: rmq.test/local
parameters: {backing: image}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: $DNS_SERVICE_IP
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns-host
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns}
addressType: IPv4
ports:
- {name: dns, port: 53, protocol: UDP}
- {name: dns-tcp, port: 53, protocol: TCP}
endpoints:
- addresses: ["$CP_IP"]
  conditions: {ready: true}
YAML
launch coredns "${in_ns[@]}" "$K8S_BIN/coredns" -conf "$K8S_HOME/conf/Corefile"

# --- nodes -----------------------------------------------------------------
for ((n = 1; n <= K8S_NODES; n++)); do
    ip=$(node_ip "$n")
    node=$K8S_HOME/nodes/n$n
    mkdir -p "$node"/{kubelet,containerd,cni/net.d,cni/state,pods-log,containers-log,volumes}
    certificate "kubelet-n$n" ca "/O=system:nodes/CN=system:node:n$n" "DNS:n$n,IP:$ip"
    kubeconfig "$node/kubeconfig" "kubelet-n$n"
    proxy_conf "$node/proxy.yaml" "n$n"
    echo "nameserver $CP_IP" >"$node/resolv.conf"
    put "$node/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ip
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet-n$n.crt
tlsPrivateKeyFile: $PKI/kubelet-n$n.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP/n$n
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: ["$DNS_SERVICE_IP"]
clusterDomain: $K8S_DOMAIN
resolvConf: $node/resolv.conf
podLogsDir: $node/pods-log
volumePluginDir: $node/kubelet/plugins-exec
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 16
syncFrequency: 20s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 200Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
maxPods: 100
registerNode: true
logging: {verbosity: 2}
YAML
    put "$node/containerd.toml" <<TOML
version = 2
root = "$node/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$node/cni/net.d"
TOML
    put "$node/cni/net.d/10-$K8S_NAME.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "$K8S_NAME", "plugins": [
  {"type": "ptp", "mtu": 1500,
   "ipam": {"type": "host-local", "dataDir": "$node/cni/state/ipam",
            "ranges": [[{"subnet": "$(node_pods "$n")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
    "$KIT/node.sh" start "n$n"
done
names=$(node_names)
for one in $names; do
    for other in $names; do
        [[ $one == "$other" ]] || ip -n "$K8S_NAME-$one" route replace "$(node_pods "${other#n}")" via "$(node_ip "${other#n}")"
    done
done
for ((n = 1; n <= K8S_NODES; n++)); do
    # The state of a node from before a restart may still say "Ready".
    wait_for 120 "kubelet on n$n" "node-n$n" healthy "$K8S_NAME-n$n" 10248 /healthz
    wait_for 120 "ready node n$n" "node-n$n" kube wait --for=condition=Ready "node/n$n" --timeout=1s
done
if (($# > 0)); then "$KIT/load.sh" "$@"; fi
if ((K8S_NODES > 0)); then
    # Makes Services reachable from this host and from the API server (webhooks).
    # kube-proxy wants the name of a node that exists, so it borrows one.
    proxy_conf "$K8S_HOME/conf/proxy.yaml" n1 "bindAddress: $CP_IP"
    launch kube-proxy "${in_ns[@]}" "$(part kube-proxy)" --config "$K8S_HOME/conf/proxy.yaml"
    wait_for 60 "Service rules" kube-proxy healthy "$CP" 10256 /healthz
fi
wait_for 60 "DNS server" coredns healthy "$CP" 8181 /ready
wait_for 60 "default service account" kube-controller-manager kube get serviceaccount default
say "cluster ready after $((SECONDS - began))s, $K8S_NODES node(s); end it with: K8S_HOME=$K8S_HOME K8S_NAME=$K8S_NAME K8S_NET=$K8S_NET $KIT/down.sh --purge"
echo "$ADMIN"
