#!/usr/bin/env bash
# Every test of the CUDA engine on GPU 0; a missing GPU fails.
#
#   tools/gpu-tests.sh                 all tests
#   tools/gpu-tests.sh memcheck        small cases of all kernels under compute-sanitizer; also racecheck, initcheck, synccheck
#   tools/gpu-tests.sh sanitize        the four one after another
#
# TEST_BINARIES=DIR takes binaries that were built elsewhere (DIR/walk, DIR/pair …; CARGO_MANIFEST_DIR must then name the
# checkout's backend-cuda); LIMIT=SECONDS ends a binary that takes longer (default 600); ONLY=REGEX keeps the binaries and
# cases whose "name filter" matches. Prints one line a binary, the log of those that fail, and fails if one does.
set -uo pipefail
cd "$(dirname "$0")/.."
mode=${1:-test}
limit=${LIMIT:-600}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if [ -z "${TEST_BINARIES:-}" ]; then
    TEST_BINARIES=$(mktemp -d)
    trap 'rm -rf "$log" "$TEST_BINARIES"' EXIT
    # A line of cargo's report for each test binary: "name": "walk" … "executable": "/…/walk-0123".
    cargo test -p treeline-cuda --no-run --message-format=json |
        sed -n 's/.*"kind":\["test"\],.*"name":"\([a-z0-9_]*\)".*"executable":"\([^"]*\)".*/\1 \2/p' |
        while read -r name path; do ln -s "$path" "$TEST_BINARIES/$name"; done
fi
export REQUIRE_GPU=1 CARGO_MANIFEST_DIR=${CARGO_MANIFEST_DIR:-$PWD/backend-cuda}
failed=0

# run NAME FILTER COMMAND…: one line about it, and its log if it failed.
run() {
    local name=$1 filter=$2 begin=$EPOCHREALTIME code
    shift 2
    [[ "$name $filter" =~ ${ONLY:-} ]] || return 0
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" "$@" "$TEST_BINARIES/$name" $filter --test-threads=1 >"$log" 2>&1
    code=$?
    local said passed
    said=$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -1)
    passed=$(sed -n 's/^test result: //p' "$log" | tail -1)
    passed=${passed%% 0 measured*}
    [ $code = 124 ] && passed="no end after $limit s: $(grep -c '\.\.\. ok$' "$log") passed until then"
    printf '%-10s %-16s %-34s %6.1f s  %s  %s\n' "$mode" "$name" "$filter" \
        "$(echo "$begin $EPOCHREALTIME" | awk '{ print $2 - $1 }')" "${said:-}" "${passed:-ended with $code}"
    if [ $code != 0 ]; then
        failed=1
        grep -vE '^(running|test .* ok|)$' "$log" | head -"${LINES_OF_LOG:-40}"
    fi
}

# Small cases that together launch every kernel, whole models first: binary, filter.
small() {
    cat <<'CASES'
parity dflash
parity f32_matches
parity bf16_is_close
engine fused_and_staged
walk
elementwise
prep
dense
sample unusable
sample candidates
gqa ragged
mla ragged
moe rows_do_not_see
moe router_agrees
moe lists_hold
moe forced_experts
moe tile_edges
trees fixed_shapes
trees spine_first
trees by_levels
gqa windows
mla windows
graphs fault_35
engine greedy_text
engine sampled
CASES
}

sanitizer() {
    local tool=$1 name filter
    mode=$tool
    command -v compute-sanitizer >/dev/null || PATH=$PATH:/usr/local/cuda/bin
    while read -r name filter; do
        # Unknown numbers of parameters are asked for until the driver refuses: that is no error.
        run "$name" "$filter" compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 --print-limit 20
    done < <(small)
}

case $mode in
test)
    for path in "$TEST_BINARIES"/*; do
        name=$(basename "$path")
        # These two need a compiler of kernels or of C++, and no GPU.
        case $name in compile | emulator_errors) continue ;; esac
        run "$name" ""
    done
    ;;
memcheck | racecheck | initcheck | synccheck) sanitizer "$mode" ;;
sanitize) for tool in memcheck initcheck synccheck racecheck; do sanitizer $tool; done ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
exit $failed
