# A user's checkpoints may be links: a shard, a step, checkpoint.dir itself. Only contents make a checkpoint broken.
load ../helpers

setup() {
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 5; keep = 0; };" >>"$DIR/job.cfg"
    muster-train "$DIR/job.cfg" --set batch.steps=10 >"$DIR/log"
    mkdir "$DIR/away"
}

@test "a shard, a step and checkpoint.dir that are links are loaded, saved and pruned" {
    cd "$DIR"
    mv ckpt/step-00000010/shard-00000-of-00001.safetensors away/
    ln -s ../../away/shard-00000-of-00001.safetensors ckpt/step-00000010/
    mv ckpt/step-00000005 away/
    ln -s ../away/step-00000005 ckpt/
    mv ckpt there
    ln -s there ckpt
    muster-train job.cfg --set batch.steps=15 >log
    cat log
    grep -q 'resumed from .*/ckpt at step 10' log
    muster-ckpt verify --all ckpt
    muster-train job.cfg --set batch.steps=20 --set checkpoint.keep=1 >log
    [ "$(echo there/step-*)" = there/step-00000020 ]
    muster-ckpt verify away/step-00000005
    ls away/shard-00000-of-00001.safetensors
}

@test "a shard that is a link and damaged is set aside as any other" {
    cd "$DIR"
    mv ckpt/step-00000010/shard-00000-of-00001.safetensors away/
    ln -s ../../away/shard-00000-of-00001.safetensors ckpt/step-00000010/
    printf x | dd of=away/shard-00000-of-00001.safetensors bs=1 seek=9000 conv=notrunc status=none
    muster-train job.cfg --set batch.steps=15 >log
    grep -q 'skipped a checkpoint: .*checksum mismatch' log
    [ -d ckpt/step-00000010.broken ]
}

@test "a link that leads nowhere ends the start with 74: its checkpoint may be whole" {
    mv "$DIR/ckpt/step-00000010" "$DIR/away/"
    ln -s "$DIR/elsewhere/step-00000010" "$DIR/ckpt/"
    run muster-train "$DIR/job.cfg" --set batch.steps=15
    echo "$output"
    [ "$status" -eq 74 ]
    grep -q "^muster-train: .*step-00000010, a link to $DIR/elsewhere/step-00000010: No such file or dir" <<<"$output"
    [[ $output != *resumed* ]]
    [ -z "$(find "$DIR/ckpt" -name '*.broken*')" ]
}
