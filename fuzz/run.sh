#!/usr/bin/env bash
# Runs fuzz targets, two at a time: run.sh SECONDS [TARGET...]; all targets if none is named.
#
# Needs a C++ compiler, for libFuzzer. What is found in addition to `corpus/` is kept in the target
# directory, where the next run goes on from; an input that makes a target fail is kept there, too,
# and its path is printed. With FUZZ_SEED=n a run begins with `corpus/` alone and draws the same
# inputs each time, so that a test that fails does so because of a change.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:?usage: run.sh SECONDS [TARGET...]}
shift
targets=("$@")
[ $# -gt 0 ] || targets=(frames headers bodies records store configuration)
host=$(rustc -vV | sed -n 's/^host: //p')
out=${CARGO_TARGET_DIR:-$here/../target}
found=$out/fuzz
# What `cargo fuzz --sanitizer none` asks for, which a stable compiler has as well. Naming the
# machine keeps build scripts and macros free of it.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
RUSTFLAGS=$(echo $coverage) cargo build --manifest-path "$here/Cargo.toml" --locked --release \
  --target "$host" --target-dir "$out"

fuzz() {
  local name=$1 log=$found/$1.log
  local corpus=$found/corpus/$name
  if [[ -n ${FUZZ_SEED:-} ]]; then
    corpus=$found/seeded/$name
    rm -rf "$corpus"
  fi
  mkdir -p "$corpus"
  local flags=(-seed="${FUZZ_SEED:-0}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=4096
    -artifact_prefix="$found/$name-" -print_final_stats=1 -verbosity=1)
  if "$out/$host/release/$name" "${flags[@]}" "$corpus" "$here/corpus/$name" \
    >"$log" 2>&1; then
    local runs edges
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    edges=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    printf '%-14s %5s s %10s runs  %s\n' "$name" "$seconds" "$runs" "$edges"
  else
    printf '%s failed:\n' "$name"
    grep -v '^#' "$log" | tail -40
    return 1
  fi
}
export -f fuzz
export seconds found here out host
printf '%s\n' "${targets[@]}" | xargs -P 2 -I {} bash -c 'fuzz {}'
