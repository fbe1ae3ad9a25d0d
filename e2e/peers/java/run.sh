#!/usr/bin/env bash
# Compiles (when something changed) and runs a program of this directory with the
# stock client of a version.
#
#   run.sh VERSION Main [--list]                scenarios; ONLY=REGEX chooses, PAR in parallel (4)
#   run.sh VERSION SendConsume TOPIC COUNT [RATE]
#   run.sh VERSION ConsumeAll TOPIC COUNT
#   run.sh VERSION StoreMessages write|read ARGUMENT...
#   run.sh VERSION AdminCommands FILE...        commands of mqadmin; 5.x only
#   run.sh VERSION mqadmin ARGUMENT...
#
# VERSION is 5.5.0 or 4.9.8. NAMESRV_ADDR says where the name server is, SLOW
# multiplies the time limits, STATE is a directory for what the clients write.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
(($# >= 2)) || { sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
version=$1 program=$2
shift 2
for tool in java javac; do
    command -v "$tool" >/dev/null || { echo "run.sh: no '$tool' here (Debian: apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }
done
jars=$("$here/../jars.sh" "$here/pom.xml" "$version")
sources=("$here"/src/*.java "$here/src${version%%.*}"/*.java)
key=$(cat -- "${sources[@]}" | sha256sum | cut -c1-12)
classes=$jars.classes/$key
if [[ ! -d $classes ]]; then
    mkdir -p "$jars.classes"
    new=$(mktemp -d "$classes.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    javac -nowarn -Xlint:none -proc:none -encoding UTF-8 -cp "$jars/*" -d "$new" "${sources[@]}" 2>&1 |
        { grep -v '^Note' >&2 || true; }
    mv -T "$new" "$classes" 2>/dev/null || [[ -d $classes ]] # another one was faster
    trap - EXIT
fi
state=${STATE:-${TMPDIR:-/tmp}/rocketmq-java-$(id -u)}
mkdir -p "$state/logs"
options=(-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dfile.encoding=UTF-8
    -Duser.home="$state" -Djava.io.tmpdir="$state" -Drocketmq.home.dir="$state"
    -Dlogback.configurationFile="$here/logback.xml" -Drocketmq.client.logRoot="$state/logs" -Drocketmq.client.logUseSlf4j=false)
if [[ $program == mqadmin ]]; then
    program=org.apache.rocketmq.tools.command.MQAdminStartup
elif [[ $program == AdminCommands ]]; then
    options+=(-Djava.security.manager=allow)
    files=()
    for file in "$@"; do files+=("$(realpath -- "$file")"); done
    set -- "${files[@]}"
    cd "$state" # some commands leave files in the working directory
fi
exec java "${options[@]}" -cp "$classes:$jars/*" "$program" "$@"
