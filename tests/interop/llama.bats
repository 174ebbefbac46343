# Folders that transformers 4 and 5 wrote of Llama, Mistral, Qwen2 and Qwen3: their logits, and exports of them.
load ../helpers

setup() {
    python=$BUILD/venv/bin/python3
    python_has "$python" numpy safetensors || skip "no numpy and safetensors in build/venv: ./setup --tests gets them"
    FOLDERS=$TOP/tests/fixtures/llama
    cd "$BATS_TEST_TMPDIR"
    english text
    muster-data text --out text >/dev/null
}

# folder NAME 4|5: as that release wrote it
folder() {
    rm -rf folder
    cp -r "$FOLDERS/$1" folder
    [ "$2" = 5 ] || cp "folder/v4"/* folder/
    rm -r folder/v4
}

# logits_agree NAME PATH: its logits are transformers'; job.cfg has the model
logits_agree() {
    "$python" "$TOP/tests/interop/peer_compare.py" tokens "$FOLDERS/$1" ids
    "$BUILD/tests/interop/logits" job.cfg "$2" ids logits
    "$python" "$TOP/tests/interop/peer_compare.py" logits "$FOLDERS/$1" logits
}

# dtype: of the tensors in folder
dtype() {
    "$python" - <<'PY'
import glob, re
text = open(sorted(glob.glob("folder/*.safetensors"))[0], "rb").read(4000).decode(errors="replace")
print({"F32": "fp32", "BF16": "bf16", "F16": "fp16"}[re.search('"dtype":"(\\w+)"', text)[1]])
PY
}

# bats test_tags=quick
@test "folders of transformers 4 and 5 give the same model, and transformers' logits" {
    for name in $(ls "$FOLDERS"); do
        folder "$name" 4
        muster-ckpt show --job folder >four
        folder "$name" 5
        muster-ckpt show --job folder >five
        cmp four five
        { sed 's/seq_length = [0-9]*/seq_length = 128/' five; echo 'data = { train = "text"; };'; } >job.cfg
        logits_agree "$name" folder
        muster-ckpt import -q folder "ckpt-$name" --to dp=3,pp=2 >/dev/null
        logits_agree "$name" "ckpt-$name"
    done
}

@test "an import and an export give the tensors bit for bit, whatever meshes lie between" {
    for name in $(ls "$FOLDERS"); do
        folder "$name" 5
        muster-ckpt import -q folder "ckpt-$name" --to dp=2,pp=2 >/dev/null
        muster-ckpt export -q --dtype "$(dtype)" "ckpt-$name" "out-$name" >/dev/null
        "$python" - folder "out-$name" <<'PY'
import glob, json, sys
def read(folder):
    tensors = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        length = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + length]).items():
            if name not in ("__metadata__", "__pad__"):
                begin, end = entry.pop("data_offsets")
                tensors[name] = entry, data[8 + length + begin:8 + length + end]
    tensors.pop("peer", None)
    return tensors
theirs, ours = map(read, sys.argv[1:])
theirs = {name: value for name, value in theirs.items() if name.startswith(("model.", "lm_head."))}
assert theirs and theirs == ours, theirs.keys() ^ ours.keys()
PY
    done
}

# exports TRANSFORMERS: what muster-ckpt exports of all models loads there
exports() {
    local peer=$BUILD/peers/venv$1/bin/python3 checks=()
    python_has "$peer" torch transformers || skip "no transformers $1: ./setup --tests=peers gets it from PyPI"
    # export_as DTYPE TORCH_DTYPE MESH OPTION...
    export_as() {
        local name
        for name in $(ls "$FOLDERS"); do
            rm -rf ckpt
            muster-ckpt import -q --to "$3" "$FOLDERS/$name" ckpt >/dev/null
            muster-ckpt export -q --dtype "$1" "${@:4}" ckpt "$1/$name"
            checks+=("$2" "$FOLDERS/$name" "$1/$name")
        done
    }
    export_as fp32 float32 dp=1
    export_as bf16 bfloat16 dp=2,pp=2 --shard-size 30KB
    [ "$(ls bf16/qwen3/model-*-of-*.safetensors | wc -l)" -gt 2 ]
    export_as fp16 float16 dp=3,zero=3
    HF_HUB_OFFLINE=1 "$peer" "$TOP/tests/interop/peer_models.py" exports "${checks[@]}"
}

# bats test_tags=more
@test "transformers 5 loads exports in every type, with its logits" { exports 5; }

# bats test_tags=more
@test "transformers 4 loads exports in every type, with its logits" { exports 4; }
