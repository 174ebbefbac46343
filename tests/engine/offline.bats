# muster-ckpt reshard against the trainer: the shards that it makes for a mesh are those that the mesh's ranks save.
load ../helpers

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    load ../helpers
    tiny_job "$DIR"
    muster-data "$DIR/text" --out "$DIR/pairs" --sentences >/dev/null
}

setup() {
    need mpiexec.mpich
    need python3
    cd "$BATS_TEST_TMPDIR"
}

# save RANKS NAME SET...: one step on a mesh, saved into NAME
save() {
    local key options=()
    for key in batch.steps=1 optimizer.warmup_steps=0 report.metrics= model.layers=5 model.heads=4 model.vocab=300 \
        "checkpoint.dir=$2" "${@:3}"; do options+=(--set "$key"); done
    ranks "$1" muster-train "$DIR/job.cfg" "${options[@]}" >"$2.log" 2>&1 || { cat "$2.log"; return 1; }
}

# The table of tensors, and the pieces of every shard in order.
pieces() {
    python3 -c 'import json, sys
manifest = json.load(open(sys.argv[1] + "/step-00000001/manifest.json"))
print(manifest["tensors"], [entry["pieces"] for entry in manifest["files"]], sep="\n")' "$1"
}

# becomes MESH SET...: from tp 2 x pp 2 into the mesh of four ranks that these keys make
becomes() {
    save 4 from parallel.tp=2 parallel.pp=2 "${extra[@]}"
    save 4 native "${@:2}" "${extra[@]}"
    muster-ckpt reshard --to "$1" from made
    [ "$(pieces made)" = "$(pieces native)" ]
    [ "$(pieces made)" != "$(pieces from)" ]
    muster-ckpt diff from made
    [ "$(muster-ckpt show made | grep 'written by')" = "$(muster-ckpt show native | grep 'written by')" ]
}

bert() { extra=(model.kind=bert "data.train=$DIR/pairs" data.valid=); }

@test "GPT to dp 4, ZeRO-3" { becomes dp=4,zero=3 parallel.zero=3; }
@test "GPT to dp 2 x tp 2, ZeRO-1" { becomes dp=2,tp=2,zero=1 parallel.tp=2 parallel.zero=1; }
@test "GPT to pp 4" { becomes pp=4,zero=1 parallel.pp=4; }
@test "GPT to dp 2 x pp 2, interleaved" {
    becomes dp=2,pp=2,zero=0,chunks=2 parallel.pp=2 parallel.chunks=2 parallel.zero=0
}
@test "BERT to dp 2 x tp 2, ZeRO-2" { bert; becomes dp=2,tp=2,zero=2 parallel.tp=2 parallel.zero=2; }
@test "BERT to pp 4" { bert; becomes pp=4,zero=1 parallel.pp=4; }
