# bats file_tags=more
# The Llama that bench/cpu and bench/gpu-day time in PyTorch is the one that muster trains.
load ../helpers

setup() {
    python=$BUILD/peers/venv5/bin/python3
    python_has "$python" torch safetensors || skip "no environment in build/peers: ./setup --tests=peers makes it"
    cd "$BATS_TEST_TMPDIR" || return
}

# equal MODEL SIZE...: step 1 has the same loss, of the same weights and samples
equal() {
    local name=$1 sizes=("${@:2}") sets=() size precision
    "$python" -B "$TOP/tests/interop/bench_peer.py" write . "$name" "${sizes[@]}"
    muster-data text --out train >/dev/null
    for size in "${sizes[@]/#seq=/seq_length=}"; do sets+=(--set "model.$size"); done
    for precision in fp32 bf16; do
        cat >job.cfg <<CFG
model = { preset = "$name"; };
precision = { compute = "$precision"; };
batch = { global_batch = 2; micro_batch = 2; steps = 1; };
optimizer = { warmup_steps = 0; };
data = { train = "train"; };
checkpoint = { stage = ""; init = "hf"; };
report = { metrics = "$precision.jsonl"; };
device = "cpu";
CFG
        muster-train job.cfg "${sets[@]}" >log 2>&1 || { cat log; return 1; }
    done
    "$python" -B "$TOP/tests/interop/bench_peer.py" compare . "$name" "${sizes[@]}"
}

@test "the Llama of the benchmarks has muster's loss at equal weights" {
    equal llama-tiny heads=2 kv_heads=1 seq=128
}

@test "so it has with llama3's scaling of positions" {
    equal llama-3.2-1b layers=1 hidden=128 heads=2 kv_heads=1 inner=352 vocab=256 seq=128
}
