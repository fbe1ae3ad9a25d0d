#!/usr/bin/env bash
# Runs a command of this machine with a cluster's DNS, so that it finds Services
# and pods by name: orders-namesrv.mq.svc. Nothing else changes, and only for it.
#
#   with_dns.sh SERVER COMMAND...      SERVER: the DNS server's address
set -euo pipefail
(($# >= 2)) || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf 'nameserver %s\nsearch cluster.local svc.cluster.local\noptions ndots:5 timeout:2\n' "$1" >"$file"
shift
# shellcheck disable=SC2016
exec unshare --mount --propagation private -- bash -c '
    mount --bind "$0" /etc/resolv.conf && rm -f "$0" && exec "$@"' "$file" "$@"
