#!/usr/bin/env bash
# Fetches the jars that a pom.xml names, once, and prints the directory they are in.
#
#   jars.sh POM VERSION
#
# They are kept outside the source tree, in a directory named after a hash of the
# pom and the version.
set -euo pipefail
pom=$1 version=$2
key=$({ echo "$version"; cat -- "$pom"; } | sha256sum | cut -c1-12)
name=$(basename -- "$(dirname -- "$(realpath -- "$pom")")")
dir=${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-rs/java/$name-$version-$key
if [[ ! -d $dir ]]; then
    command -v mvn >/dev/null || { echo "jars.sh: no 'mvn' here (Debian: apt-get install maven)" >&2; exit 1; }
    echo "jars.sh: fetching the jars of $name $version, once; kept in $dir" >&2
    mkdir -p "${dir%/*}"
    new=$(mktemp -d "$dir.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    mvn -q -B -Dstyle.color=never -f "$pom" dependency:copy-dependencies -Drmq.version="$version" \
        -DoutputDirectory="$new" -DincludeScope=runtime >&2
    chmod 755 "$new"
    mv -T "$new" "$dir" 2>/dev/null || [[ -d $dir ]] # another one was faster
    trap - EXIT
fi
echo "$dir"
