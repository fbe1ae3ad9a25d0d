#!/usr/bin/env bash
# Builds the images of the operator, the name server and the broker without a
# container engine, as OCI archives, and a kustomize overlay that installs them.
#
#   build.sh [DIRECTORY]        (default: target/images)
#
# An image holds a release program and the shared libraries that it needs, no
# shell; its tag is the version and a hash of the content. Prints the three image
# names. BIN names a directory of programs to take instead of building them,
# REPOSITORY what comes before the names (rocketmq.rs), LABEL an extra label
# (KEY=VALUE), which makes a different image of the same programs.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
out=${1:-$root/target/images}
repository=${REPOSITORY:-rocketmq.rs}
size_limit_mib=40
mkdir -p "$out"
out=$(cd -- "$out" && pwd)
for tool in python3 ldd; do
    command -v "$tool" >/dev/null || { echo "build.sh: no '$tool' here" >&2; exit 1; }
done

if [[ -z ${BIN:-} ]]; then
    echo "building the release programs" >&2
    (cd "$root" && cargo build --release -p operator -p namesrv -p broker -p rmq) >&2
    BIN=${CARGO_TARGET_DIR:-$root/target}/release
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
printf 'root:x:0:0:root:/:/sbin/nologin\nrocketmq:x:65532:65532:rocketmq:/var/lib/rocketmq:/sbin/nologin\n' >"$files/passwd"
printf 'root:x:0:\nrocketmq:x:65532:\n' >"$files/group"
printf 'hosts: files dns\n' >"$files/nsswitch.conf"

image() { # NAME PROGRAM...: the first program is what the image runs
    local name=$1 program arguments=()
    shift
    for program in "$@"; do
        [[ -x $BIN/$program ]] || { echo "build.sh: no program $BIN/$program" >&2; exit 1; }
        arguments+=(--add "$BIN/$program:/usr/local/bin/$program")
    done
    [[ -z ${LABEL:-} ]] || arguments+=(--label "$LABEL")
    "$here/mkimage.py" --name "$repository/$name:$version-{digest}" --out "$out/$name.tar" \
        --libs "${arguments[@]}" --entrypoint "/usr/local/bin/$1" --user 65532:65532 \
        --add "$files/passwd:/etc/passwd" --add "$files/group:/etc/group" \
        --add "$files/nsswitch.conf:/etc/nsswitch.conf" --limit "$size_limit_mib" \
        --label "org.opencontainers.image.version=$version"
}
operator=$(image rocketmq-operator rocketmq-operator)
namesrv=$(image rocketmq-namesrv rocketmq-namesrv)
broker=$(image rocketmq-broker rocketmq-broker rmq)

cat >"$out/kustomization.yaml" <<YAML
# Written by deploy/images/build.sh: kubectl apply --server-side -k $out
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: rocketmq-system
resources:
  - $(realpath --relative-to="$out" "$root/deploy/base")
images:
  - name: rocketmq.rs/rocketmq-operator
    newName: ${operator%:*}
    newTag: ${operator##*:}
configMapGenerator:
  - name: rocketmq-operator
    behavior: merge
    literals:
      - ROCKETMQ_NAMESRV_IMAGE=$namesrv
      - ROCKETMQ_BROKER_IMAGE=$broker
YAML
printf '%s\n' "$operator" "$namesrv" "$broker"
