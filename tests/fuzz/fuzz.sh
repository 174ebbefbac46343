#!/usr/bin/env bash
# fuzz.sh - libFuzzer on every parser of files that others give us: each for ten seconds, two at a time. Memory errors,
# leaks and undefined behaviour are findings.
#
#   tests/fuzz/fuzz.sh [NAME]...     safetensors manifest job indexed topology tokenizer json_text; none named: all
#     MUSTER_FUZZ_SECONDS=N       (10; 600 with MUSTER_CHECK_FULL)
#
# Builds with clang into build/fuzz/. Seeds are what our own programs write. An input
# that is a finding stays in build/fuzz/NAME.findings/, and build/fuzz/NAME FILE runs it again.
. "$(dirname "$0")/../helpers.bash"

all=(safetensors manifest job indexed topology tokenizer json_text)
[ $# -eq 0 ] || all=("$@")
seconds=10
[ -z "${MUSTER_CHECK_FULL-}" ] || seconds=600
seconds=${MUSTER_FUZZ_SECONDS:-$seconds}
out=$BUILD/fuzz
clang=$(command -v clang-14 || command -v clang) || { echo "1..0 # SKIP clang is not installed"; exit 0; }
sanitizers=-fsanitize=fuzzer,address,undefined
echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' |
    "$clang" $sanitizers -x c - -o /dev/null 2>/dev/null ||
    { echo "1..0 # SKIP clang has no libFuzzer (libclang-rt-14-dev)"; exit 0; }

cd "$TOP" || exit
sources=({common,common/*,ckpt/file,ckpt/format,tokenizer,plan}/*.c trainer/data/{indexed,json_text}.c
    srun-plugin/order/topology.c)
packages='jansson libconfig libisal libpcre2-8 libutf8proc'
flags="-g -O1 $sanitizers -fno-sanitize-recover=undefined -D_GNU_SOURCE -I. -I$BUILD -DMACHINE_DIR=\"etc/machines\""
libraries="$(pkg-config --libs $packages) -lm"
if grep -q '^#define HAVE_SENTENCEPIECE' "$BUILD/config.h"; then
    sources+=(tokenizer/sentencepiece_shim.cc)
    libraries+=' -lsentencepiece -lsentencepiece_train -lstdc++'
fi

# Compiles the source $1 into $out/objects.
compile() {
    local object=$out/objects/${1//\//-}.o
    case $1 in
    *.cc) "$clang" -x c++ -std=c++17 $flags -fno-sanitize=vptr,function -c "$1" -o "$object" ;;
    *) "$clang" -std=gnu17 $flags $(pkg-config --cflags $packages) -c "$1" -o "$object" ;;
    esac
}

export -f compile
export clang flags packages out

# All sources in one archive, so that the linker takes what a parser calls.
build_sources() {
    rm -rf "$out/objects" "$out/sources.a"
    mkdir -p "$out/objects"
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c 'compile {}' || return
    rm "$out/objects/plan-muster-plan.c.o"
    ar rcs "$out/sources.a" "$out"/objects/*.o
}

build() {
    "$clang" -std=gnu17 $flags $(pkg-config --cflags $packages) "tests/fuzz/fuzz_$1.c" "$out/sources.a" -o "$out/$1" $libraries
}

# What our own programs write, once.
make_seeds() {
    local dir=$out/seeds part
    rm -rf "$dir"
    mkdir -p "$dir"/{safetensors,manifest,job,indexed,topology,tokenizer,json_text,made}
    "$BUILD/tests/crash/saver" --seed 7 "$dir/made/ckpt" 10 >/dev/null
    "$BUILD/tests/crash/saver" --seed 9 --shards 3 --absent --attempt x "$dir/made/ckpt" 20 >/dev/null
    cp "$dir"/made/ckpt/step-00000010/manifest.json "$dir/manifest/whole"
    for part in "$dir"/made/ckpt/*.partial/*.json; do
        { printf 'p\000\002'; cat "$part"; } >"$dir/manifest/$(basename "$part")"
    done
    for part in "$dir"/made/ckpt/step-00000010/*.safetensors; do
        head -c 4096 "$part" >"$dir/safetensors/$(basename "$part")"
    done
    printf '\x58\0\0\0\0\0\0\0%-88s%s' \
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}' 01234567 \
        >"$dir/safetensors/whole"
    printf '\x02\0\0\0\0\0\0\0{}' >"$dir/safetensors/empty"
    cp "$TOP"/etc/*.cfg "$dir/job"
    for part in "$TOP"/tests/unit/broken_jobs/*.cfg; do cp "$part" "$dir/job/broken-$(basename "$part")"; done
    printf 'model = "gpt-tiny"; data = { train = "t"; };\001batch.steps=7' >"$dir/job/set"
    printf 'n[1-4,7],m[08-11]\001SwitchName=a Nodes=n[1-4] # x\nSwitchName=b Nodes=m[08-11]\nSwitchName=c \\\nSwitches=a,b\n' \
        >"$dir/topology/tree"
    printf 'n[1-8]\001BlockName=a BlockIndex=0 Nodes=n[1-4] BlockSize=4\nBlockName=b Nodes=n[5-8]\n' >"$dir/topology/blocks"
    printf '0-6:2,1-3:2,5,7' >"$dir/topology/map"
    printf '8(x3),4' >"$dir/topology/counts"
    english "$dir/made/english"
    head -n 12 "$dir/made/english" >"$dir/made/text"
    muster-data "$dir/made/text" --out "$dir/made/gpt" >/dev/null
    muster-data "$dir/made/text" --out "$dir/made/bert" --sentences >/dev/null
    cp "$dir"/made/*.idx "$dir/indexed"
    python3 "$TOP/tests/fuzz/tokenizer_seeds.py" "$dir/tokenizer"
    printf '%s' '{"id": [1, {"text": null}, -0.5e+3], "text": "a\n\u00e9\ud83d\ude00 \"", "x": true}' \
        >"$dir/json_text/all"
    printf '{"text": "\303\251\360\237\230\200", "text": ""}' >"$dir/json_text/utf8"
    printf '{"text": NaN}' >"$dir/json_text/nan"
    printf '\357\273\277{"\\u0000\\ud800": [123456789012345678901, -1e999, -Infinity], "text": "\\udc00"}' \
        >"$dir/json_text/python"
}

dictionary() {
    case $1 in
    job) "$BUILD/muster-train" --keys 2>/dev/null |
        awk '{ n = split($1, p, "."); print "\"" p[n] "\""; print "\"" $1 "\"" }' | sort -u ;;
    manifest) printf '"%s"\n' '\"tensors\":' '\"files\":' '\"pieces\":' '\"block_crc32c\":' '\"shards\":' '\"state\":' '[0,0,1]' ;;
    safetensors) printf '"%s"\n' '\"dtype\":' '\"F32\"' '\"BF16\"' '\"shape\":' '\"data_offsets\":' '__metadata__' '[0,0]' ;;
    topology) printf '"%s"\n' 'SwitchName=' 'BlockName=' ' Nodes=' ' Switches=' 'AggregatedBlock=' '\x01' '[1-4]' '(x3)' ;;
    tokenizer) printf '"%s"\n' '\"lstrip\":true' '\"normalized\":true' '\"type\":\"NFC\"' '\"Digits\"' '\"Split\"' '\"Regex\"' \
        '\"Punctuation\"' '\"Metaspace\"' '\"prepend_scheme\":\"never\"' '\"byte_fallback\":false' \
        '\"ignore_merges\":true' '\"add_prefix_space\":true' '\xc4\xa0' '\xe2\x96\x81' '\x01' '[UNK]\x0a' '##' ;;
    json_text) printf '"%s"\n' '\"text\": ' '\"text\":\"' '\\u' '\\ud83d\\ude00' 'null' 'true' '[[[' ']]]' '1e5' '-0' '12345678901234567890' '1e999' '\\u0000' '\xef\xbb\xbf' 'Infinity' '\xc3\xa9' ;;
    indexed) printf '"%s"\n' 'MMIDIDX\x00\x00' '\x01\x00\x00\x00\x00\x00\x00\x00' ;;
    esac
}

# One line of TAP, into a file: two run at once.
run_one() {
    local name=$1 corpus=$out/$1.corpus runs seeds
    rm -rf "$corpus" "$out/$name.findings"
    mkdir -p "$corpus" "$out/$name.findings"
    dictionary "$name" >"$out/$name.dict"
    if "$out/$name" -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -dict="$out/$name.dict" -artifact_prefix="$out/$name.findings/" "$corpus" "$out/seeds/$name" \
        >"$out/$name.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log")
        seeds=$(sed -n 's/^#\([0-9]*\).*INITED cov: .*/\1/p' "$out/$name.log")
        if [ "${runs:-0}" -gt "${seeds:-$runs}" ]; then
            echo "ok - $name: $runs inputs in $seconds s, $(grep -o 'cov: [0-9]*' "$out/$name.log" | tail -n 1)"
        else
            echo "not ok - $name: ${runs:-no} inputs were run, none beyond the seeds; see $out/$name.log"
        fi
    else
        echo "not ok - $name: $(grep -m 1 -E 'ERROR|runtime error' "$out/$name.log"); see $out/$name.log and $out/$name.findings"
    fi >"$out/$name.tap"
}

mkdir -p "$out"
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # the index is read from a file each time
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
echo "1..${#all[@]}"
code=0
build_sources 2>"$out/errors" || { echo "not ok - the sources do not build"; sed 's/^/# /' "$out/errors" | head -n 20; exit 1; }
make_seeds || { echo "not ok - the seeds cannot be made"; exit 1; }
for name in "${all[@]}"; do
    build "$name" || { echo "not ok - $name does not build"; code=1; continue; }
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    run_one "$name" &
done
wait
for name in "${all[@]}"; do
    [ -f "$out/$name.tap" ] || continue
    cat "$out/$name.tap"
    ! grep -q '^not ok' "$out/$name.tap" || code=1
    rm -f "$out/$name.tap"
done
exit $code
