# bats file_tags=more
# The memory predicted before a run is what the run takes: allocations counted to 3%, and as a cross-check the
# pages that the operating system saw, to 10% beyond what a process with next to no model has.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load ../helpers
    tiny_job "$DIR"
}

setup() {
    need mpiexec.mpich
}

# run_two RANKS SET...: two steps; the line of the end is left in $line
run_two() {
    local n=$1 sets=() key
    shift
    for key in batch.steps=2 optimizer.warmup_steps=0 "$@"; do sets+=(--set "$key"); done
    ranks "$n" muster-train "$DIR/job.cfg" "${sets[@]}" >"$DIR/log" 2>&1 || { cat "$DIR/log"; return 1; }
    line=$(grep '^memory of rank 0: ' "$DIR/log")
}

# number TEXT: the number after TEXT in $line
number() { sed -n "s/.*[:;] $1 \([0-9.]*\) .*/\1/p" <<<"$line"; }

# predicted RANKS SET...
predicted() {
    local n=$1 size=(model.layers=4 model.hidden=512 model.heads=8 model.seq_length=128 model.vocab=8192)
    shift
    run_two "$n" model.layers=1 model.hidden=16 model.heads=4 model.seq_length=8 "$@"
    local base; base=$(number resident)
    run_two "$n" "${size[@]}" batch.global_batch=8 batch.micro_batch=2 "$@"
    echo "# $line"
    sed -n 's/.*(largest error of any rank: \([0-9.]*\)%).*/\1/p' <<<"$line" | awk '{ exit !($1 <= 3.0) }'
    awk -v resident="$(number resident)" -v base="$base" -v device="$(sed -n 's/^memory of rank 0: predicted \([0-9.]*\) .*/\1/p' <<<"$line")" \
        -v host="$(sed -n 's/.*host: predicted \([0-9.]*\) .*/\1/p' <<<"$line")" \
        'BEGIN { want = device + host; got = resident - base; print "# resident", got, "of", want
                 exit !(want > 20 && got > 0.90 * want && got < 1.10 * want + 10) }'
}

@test "one rank" { predicted 1 parallel.zero=0; }
@test "one rank, offload, bf16" { predicted 1 parallel.offload=optimizer precision.compute=bf16; }
@test "one rank, norms and activations recomputed" { predicted 1 parallel.recompute=light; }
@test "one rank, layers recomputed" { predicted 1 parallel.recompute=full; }
# bats test_tags=quick
@test "dp 2, ZeRO-1" { predicted 2 parallel.zero=1; }
@test "dp 2, ZeRO-2, fp16, 16-bit sums" { predicted 2 parallel.zero=2 precision.compute=fp16 precision.reduce=compute; }
@test "dp 2, ZeRO-1, bf16, gradients kept in 16 bits" {
    predicted 2 parallel.zero=1 precision.compute=bf16 precision.gradients=compute
}
@test "dp 3, ZeRO-3" { predicted 3 parallel.zero=3; }
@test "dp 2, ZeRO-3, offload, bf16" { predicted 2 parallel.zero=3 parallel.offload=optimizer precision.compute=bf16; }
@test "tp 2" { predicted 2 parallel.tp=2; }
# bats test_tags=quick
@test "tp 2 x pp 2, dropout, attention recomputed" {
    predicted 4 parallel.tp=2 parallel.pp=2 parallel.recompute=selective model.dropout=0.1
}
@test "pp 2 with two chunks, ZeRO-1 at dp 2" { predicted 4 parallel.pp=2 parallel.chunks=2; }
@test "tp 2 x pp 2 x dp 2, ZeRO-3" { predicted 8 parallel.tp=2 parallel.pp=2 parallel.zero=3; }
@test "pp 4 with two layers: stages of an embedding, one layer and a head" {
    predicted 4 parallel.pp=4 model.layers=2
    predicted 4 parallel.pp=4 model.layers=1 precision.compute=bf16
}
@test "dp 2, ZeRO-2 with one micro-batch of 4, bf16" {
    predicted 2 parallel.zero=2 precision.compute=bf16 batch.micro_batch=4
}

# llama RANKS SET...: a Llama's block, exactly
llama() {
    predicted "$1" model.kind=llama model.kv_heads=4 "${@:2}"
    grep -q '(largest error of any rank: 0\.0%)' <<<"$line"
}
# bats test_tags=quick
@test "a Llama on one rank, in every way to recompute" {
    for how in none light selective full; do llama 1 parallel.recompute=$how model.untied=true; done
}
@test "a Llama with data parallelism" {
    llama 2 parallel.zero=0 precision.compute=bf16
    llama 2 parallel.zero=1 parallel.recompute=light model.biases=qkv
    llama 2 parallel.zero=2 precision.compute=fp16 model.untied=true
    llama 3 parallel.zero=3 model.qk_norm=true
    llama 2 parallel.zero=3 parallel.offload=optimizer precision.compute=bf16 model.window=20
}
@test "a Llama with tensor and pipeline parallelism" {
    llama 2 parallel.tp=2 model.qk_norm=true
    llama 4 parallel.tp=4 model.untied=true parallel.recompute=light precision.compute=bf16
    llama 2 parallel.pp=2 model.untied=true
    llama 4 parallel.pp=4 model.untied=true parallel.zero=1
    llama 4 parallel.pp=2 parallel.chunks=2 model.untied=true parallel.zero=2
    llama 4 parallel.tp=2 parallel.pp=2 model.head_size=24 parallel.recompute=selective model.dropout=0.1
    llama 8 parallel.tp=2 parallel.pp=2 parallel.zero=3 model.biases=qkv
}
