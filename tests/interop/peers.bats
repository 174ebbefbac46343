# Losses and gradients of the Llama family beside transformers: tests/fixtures/llama has tiny models, and what
# transformers computes with them (peer_models.py, peer_compare.py).
load ../helpers

setup() {
    PYTHON=$BUILD/venv/bin/python3 LLAMA=$TOP/tests/fixtures/llama
    [ -x "$PYTHON" ] || PYTHON=/usr/bin/python3
    python_has "$PYTHON" numpy || skip "python3-numpy is not installed"
    cd "$BATS_TEST_TMPDIR"
    peer data "$LLAMA/llama" text # the batch of all models
}

peer() { "$PYTHON" "$TOP/tests/interop/peer_compare.py" "$@"; }

# step FOLDER OUT SET...: of one step from the folder, losses and gradients into OUT
step() {
    mkdir -p "$2"
    {
        muster-ckpt show --job "$1"
        echo "parallel = { zero = 0; }; batch = { global_batch = 2; micro_batch = 1; steps = 1; seed = 1; };"
        echo "optimizer = { lr = 1e-3; }; data = { train = \"text\"; }; checkpoint = { init = \"$1\"; };"
    } >job.cfg
    "$BUILD/tests/interop/gradients" job.cfg "$2" model.seq_length=128 "${@:3}"
}

# steps PRECISION VARIANT SET...: of all models, compared with transformers
steps() {
    local folder pairs=()
    for folder in "$LLAMA"/*; do
        step "$folder" "${folder##*/}" "precision.compute=$1" "${@:3}"
        pairs+=("$folder" "${folder##*/}")
    done
    peer step "$1" "$2" "${pairs[@]}"
}

@test "fp32: losses and gradients are transformers'" { steps fp32 causal; }

@test "fp32: losses and gradients are transformers', with documents" { steps fp32 documents data.reset=document data.eod=0; }

@test "bf16: gradients are as near to fp32 as PyTorch's" { steps bf16 causal; }

@test "bf16: gradients are as near to fp32 as PyTorch's, with documents" { steps bf16 documents data.reset=document data.eod=0; }

# bats test_tags=more
@test "a model with one thing wrong is noticed" {
    for folder in "$LLAMA"/*; do
        name=${folder##*/}
        peer wrong "$folder" $name
        for control in $name/*; do step $control $control/ours; done
        peer controls "$folder" $name
    done
}
