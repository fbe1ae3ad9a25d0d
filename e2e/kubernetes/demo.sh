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

step() { printf '\n== %s\n' "$*"; }
kubectl() { "$K8S_HOME/conf/kubectl" --kubeconfig "$K8S_HOME/admin.kubeconfig" "$@"; }

step "Kubernetes: three nodes, no container engine (built once, if it is not cached)"
"$here/up.sh" >/dev/null

step "Images: built from the release programs, loaded into the nodes"
images=$root/target/images
"$root/deploy/images/build.sh" "$images"
"$here/load.sh" "$images"/rocketmq-{operator,namesrv,broker}.tar 2>/dev/null

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

step "Messages: 'rmq' sends ten and consumes them"
dns=$(kubectl -n kube-system get service kube-dns -o 'jsonpath={.spec.clusterIP}')
rmq() { "$here/with_dns.sh" "$dns" "${CARGO_TARGET_DIR:-$root/target}/release/rmq" "$@"; }
namesrv=minimal-namesrv.mq.svc:9876
rmq send -n "$namesrv" -t Demo --count 10 "hello from the demo"
rmq consume -n "$namesrv" -t Demo -g demo --count 10

cat <<TEXT

It is running. What to try next:

  alias k='$K8S_HOME/conf/kubectl --kubeconfig $K8S_HOME/admin.kubeconfig'
  k -n mq get rmq                                            # the cluster in one line
  k -n mq patch rmq minimal --type merge -p '{"spec":{"brokers":{"groups":2}}}'
  k -n mq get rmqbg -w                                       # watch the second group come
  k -n mq delete pod minimal-0-0                             # and see it come back with its messages
  $here/with_dns.sh $dns ${CARGO_TARGET_DIR:-$root/target}/release/rmq cluster -n $namesrv
  $here/node.sh kill n2                                      # power failure (K8S_HOME=$K8S_HOME K8S_NAME=$K8S_NAME K8S_NET=$K8S_NET)

Take it down:  $here/demo.sh down
TEXT
