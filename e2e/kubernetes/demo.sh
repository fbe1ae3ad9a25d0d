#!/usr/bin/env bash
# From nothing to messages through a RocketMQCluster on a real Kubernetes: brings a
# cluster of three nodes up, builds and loads the images, installs the operator,
# applies deploy/samples/minimal.yaml, sends and consumes, and leaves it running.
#
#   demo.sh          (again: continues with what runs)
#   demo.sh down     ends it and removes all of it
#
# Needs root on Linux. K8S_HOME (/var/tmp/rocketmq-demo) is where its state is.
set -euo pipefail
export K8S_HOME=${K8S_HOME:-/var/tmp/rocketmq-demo} K8S_NAME=rmqdemo K8S_NET=10.77 K8S_NODES=3
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
if [[ ${1:-} == down ]]; then exec "$here/down.sh" --purge; fi

count=10000

step() { printf '\n== %s\n' "$*"; }
kubectl() { "$K8S_HOME/conf/kubectl" --kubeconfig "$K8S_HOME/admin.kubeconfig" "$@"; }

step "Kubernetes: three nodes, no container engine (built once, if it is not cached)"
"$here/up.sh" >/dev/null

step "Images: built from the release programs, loaded into the nodes"
images=$root/target/images
"$root/deploy/images/build.sh" "$images"
"$here/load.sh" "$images"/rocketmq-{operator,namesrv,broker}.tar

step "Operator: kubectl apply --server-side -k $images"
kubectl apply --server-side -k "$images" >/dev/null
kubectl -n rocketmq-system rollout status deployment/rocketmq-operator --timeout=120s

step "RocketMQCluster: kubectl apply -n mq -f deploy/samples/minimal.yaml"
kubectl create namespace mq --dry-run=client -o yaml | kubectl apply --server-side -f - >/dev/null
kubectl -n mq apply --server-side -f "$root/deploy/samples/minimal.yaml"
began=$SECONDS
kubectl -n mq wait rocketmqcluster/minimal --for=condition=Ready --timeout=120s
printf 'ready after %s s\n\n' $((SECONDS - began))
kubectl -n mq get rocketmq,pods

step "Messages: $count through it, from this machine, every one exactly once"
dns=$(kubectl -n kube-system get service kube-dns -o 'jsonpath={.spec.clusterIP}')
export NAMESRV_ADDR=minimal-namesrv.mq.svc:9876
program=${BIN:-${CARGO_TARGET_DIR:-$root/target}/release}/rmq
rmq() {
    printf '$ rmq %s\n' "$*"
    "$here/with_dns.sh" "$dns" "$program" "$@"
}
# DNS servers remember for some seconds that a name was not there yet.
for ((i = 0; i < 60; i++)); do
    if "$here/with_dns.sh" "$dns" getent hosts minimal-0-0.minimal-broker.mq.svc >/dev/null; then break; fi
    sleep 0.5
done
rmq cluster
topic=Demo-$$
rmq topic create "$topic" --queues 8
rmq send "$topic" --count "$count" --size 128
rmq consume "$topic" --group demo-$$ --from first --expect "$count" --timeout 20s

cat <<TEXT

It is running. What to try next:

  alias k='$K8S_HOME/conf/kubectl --kubeconfig $K8S_HOME/admin.kubeconfig -n mq'
  alias mq='$here/with_dns.sh $dns $program -n $NAMESRV_ADDR'
  k get rmq                                  # the cluster in one line
  k patch rmq minimal --type merge -p '{"spec":{"brokers":{"groups":2}}}'
  k get rmqbg -w                             # watch the second group come; Ctrl-C ends it
  k delete pod minimal-0-0                   # it comes back with its messages
  mq cluster                                 # what the name server says
  k get events

Take it down:  $here/demo.sh down
TEXT
