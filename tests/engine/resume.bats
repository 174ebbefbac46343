# bats file_tags=more
# Interrupted runs go on as if nothing had happened.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

newest() {
    basename "$(ls -d "$1"/step-???????? | tail -n 1)"
}

# start_ranks N ARGS...: muster-train on N ranks in the background, its log in DIR/log, its pid in $run_pid
start_ranks() {
    local n=$1
    shift
    RANKS_SECONDS=120 ranks "$n" muster-train "$DIR/job.cfg" "$@" >>"$DIR/log" 2>&1 3>&- &
    run_pid=$!
}

stopped_with_75() {
    local code=0
    wait "$run_pid" || code=$?
    [ "$code" -eq 75 ] || { cat "$DIR/log"; echo "exit $code"; return 1; }
}

# bats test_tags=quick
@test "a signal to one rank stops all ranks, and a resume on the same mesh is bit-identical" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=300 --set checkpoint.dir="$DIR/whole" \
        --set report.metrics="$DIR/whole.jsonl" >/dev/null
    start_ranks 2 --set batch.steps=300
    eventually 30 steps_done 20
    kill -USR1 "$(pgrep -f "muster-train $DIR/job.cfg" -n)"
    stopped_with_75
    grep -q 'stopping after step .*: signal 10' "$DIR/log"
    step=$(newest "$DIR/ckpt")
    [ "$(wc -l <"$DIR/metrics.jsonl")" -lt 300 ]
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=300 >>"$DIR/log"
    grep -q "resumed from .* at step $((10#${step#step-}))" "$DIR/log"
    muster-ckpt diff "$DIR/ckpt/step-00000300" "$DIR/whole/step-00000300"
    muster-report compare --tolerance 0 "$DIR/metrics.jsonl" "$DIR/whole.jsonl"
}

@test "another number of heads is refused as another model, and changed job file keys are logged" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 >"$DIR/log"
    code=0
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=14 --set model.heads=4 >"$DIR/log" 2>"$DIR/err" || code=$?
    cat "$DIR/log" "$DIR/err"
    [ "$code" -eq 78 ]
    grep -q "step-00000010 is of another model: it has 2 heads, the job file's model 4" "$DIR/err"
    [ "$(newest "$DIR/ckpt")" = step-00000010 ]
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=12 >"$DIR/log"
    grep -qx "batch.steps was 10 up to step 10, and is 12 from now on" "$DIR/log"
    grep -Eqx "the learning rate of step 11 is [0-9.E-]+, and would have been 3.000E-04" "$DIR/log"
    [ "$(grep -c 'up to step' "$DIR/log")" -eq 1 ]
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=14 --set data.train="$DIR/valid" >"$DIR/log"
    grep -qx "data.train was \"$DIR/train\" up to step 12, and is \"$DIR/valid\" from now on" "$DIR/log"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=14 --set data.train="$DIR/valid" >"$DIR/log"
    grep -q "resumed from .* at step 14" "$DIR/log"
    [ "$(grep -c 'up to step' "$DIR/log")" -eq 0 ]
}

@test "a data set that was replaced under its prefix is refused (78) until it is accepted; one that was moved is not" {
    replace() { # PREFIX, by the set of another text
        rm -rf "$1".*
        head -c "$2" "$DIR/text" >"$DIR/other"
        muster-data "$DIR/other" --out "$1" >/dev/null
    }
    resume() {
        ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=$((20 + $1)) "${@:2}" >"$DIR/log" 2>&1
    }
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 >"$DIR/log"
    for set in train valid; do
        mkdir -p "$DIR/moved"
        cp -r "$DIR/$set".* "$DIR/moved/"
    done
    for set in train valid; do
        replace "$DIR/$set" 60000
        code=0
        resume 1 || code=$?
        cat "$DIR/log"
        [ "$code" -eq 78 ]
        had=$(muster-data verify "$DIR/moved/$set" | sed 's/.*: \([0-9]*\) tokens.*/\1/')
        said="data set $DIR/$set was replaced: it has 60000 tokens in 1 document (index [0-9a-f]*), and had $had in 1 ("
        grep -q "^muster-train: $said.*): restore it, or go on with it by --set data.changed=accept$" "$DIR/log"
        [ "$(newest "$DIR/ckpt")" = step-00000020 ]
        cp -r "$DIR/moved/$set".* "$DIR/"
    done
    # The same shape, and other tokens.
    for set in train valid; do
        LC_ALL=C tr a-z b-za <"$DIR/moved/$set.bin" >"$DIR/$set.bin"
        code=0
        resume 1 || code=$?
        [ "$code" -eq 78 ]
        grep -q "^muster-train: data set $DIR/$set was replaced: it has documents of the same lengths .* and other tokens" "$DIR/log"
        cp "$DIR/moved/$set.bin" "$DIR/"
    done
    resume 2 --set data.train="$DIR/moved/train" --set data.valid="$DIR/moved/valid"
    resume 3
    replace "$DIR/train" 40000
    resume 5 --set data.changed=accept
    grep -q "^warning: data set $DIR/train was replaced: it has 40000 tokens" "$DIR/log"
    resume 6
    [ "$(grep -c 'was replaced' "$DIR/log")" -eq 0 ]
    muster-ckpt show --job "$DIR/ckpt" | grep -q "^#! data 2: 40000 tokens, 1 documents, index [0-9a-f]*, blocks [0-9a-f]*, $DIR/train$"
    # Another run that starts from this one may have other data under that name: one line.
    replace "$DIR/train" 30000
    resume 7 --set checkpoint.load="$DIR/ckpt" --set checkpoint.dir="$DIR/branch"
    grep -q "^warning: data set $DIR/train was replaced: it has 30000 tokens" "$DIR/log"
}

@test "a byte order mark of the job file is dropped, and one rank says so" {
    { printf '\357\273\277'; cat "$DIR/job.cfg"; } >"$DIR/marked.cfg"
    for marked in "--check $DIR/marked.cfg" "$DIR/marked.cfg --set batch.steps=6"; do
        ranks 2 muster-train $marked >"$DIR/log" 2>"$DIR/err"
        cat "$DIR/err"
        [ "$(sort -u "$DIR/err")" = "muster-train: $DIR/marked.cfg begins with a byte order mark: such marks are dropped" ]
    done
    [ "$(wc -l <"$DIR/err")" -eq 1 ]
    muster-ckpt show --job "$DIR/ckpt" | head -n 1 | cmp - <(head -n 1 "$DIR/job.cfg")
}

@test "of two jobs in one checkpoint.dir, the one with fewer steps reports it once" {
    # The other's is a checkpoint of this very run's, of a step that it has yet to come to.
    ranks 1 muster-train "$DIR/job.cfg" --set batch.steps=900 --set checkpoint.dir="$DIR/far" --set report.metrics= >"$DIR/log"
    for stage in /dev/shm ""; do
        rm -rf "$DIR/ckpt" "$DIR/log"
        start_ranks 2 --set batch.steps=100000 --set checkpoint.every=20 --set checkpoint.keep=0 \
            --set checkpoint.stage="$stage" --set report.metrics="$DIR/m" --set report.kill_file="$DIR/stop"
        eventually 30 test -e "$DIR/ckpt/step-00000040"
        mv "$DIR/far/step-00000900" "$DIR/ckpt/"
        said='has a checkpoint of step 900, and this run is at step .*[.] Another job saves there'
        eventually 30 grep -q "$said" "$DIR/log"
        more() { [ "$(sed "1,/$said/d" "$DIR/log" | grep -c '^checkpoint of step [0-9]* saved')" -ge 3 ]; }
        eventually 30 more
        touch "$DIR/stop"
        stopped_with_75
        cat "$DIR/log"
        mv "$DIR/ckpt/step-00000900" "$DIR/far/"
        [ "$(grep -c "$said" "$DIR/log")" -eq 1 ]
        rm -f "$DIR"/m* "$DIR/stop"
    done
}

@test "TERM, USR2, INT, HUP, the kill-switch file and the minutes limit all save and exit 75" {
    for signal in TERM USR2 INT HUP; do
        rm -f "$DIR/metrics.jsonl"
        start_ranks 2 --set batch.steps=100000 --set checkpoint.dir="$DIR/$signal"
        eventually 30 steps_done 3
        kill -$signal "$(pgrep -f "muster-train $DIR/job.cfg" -n)"
        stopped_with_75
        muster-ckpt verify "$DIR/$signal/$(newest "$DIR/$signal")"
    done
    rm -f "$DIR/metrics.jsonl"
    start_ranks 2 --set batch.steps=100000 --set report.kill_file="$DIR/kill.me"
    eventually 30 steps_done 3
    touch "$DIR/kill.me"
    stopped_with_75
    grep -q 'stopping after step .*: the file' "$DIR/log"
    run ranks 2 muster-train "$DIR/job.cfg" --set report.kill_file="$DIR/kill.me"
    [ "$status" -eq 78 ]
    rm -rf "$DIR/metrics.jsonl" "$DIR/ckpt"
    start_ranks 1 --set batch.steps=1000000 --set report.minutes=0.02
    stopped_with_75
    grep -q 'limit of 0.02 minutes' "$DIR/log"
}

# handled_anywhere PID: the threads that would handle a signal, and its bits; they may be in a matrix product. The signals
# that end a process (fatal_signals in watchdog.c) have handlers that do not return; 33 is the C library's own.
handled_anywhere() {
    local status number faults=$((1 << 33 - 1))
    for number in ABRT SEGV BUS FPE ILL SYS TRAP QUIT XCPU ALRM PROF VTALRM IO PWR STKFLT; do
        faults=$((faults | 1 << $(kill -l $number) - 1))
    done
    for status in /proc/"$1"/task/*/status; do
        awk '/^Sig(Blk|Cgt)/ { print $1 "0x" $2 }' "$status" | tr -d ':' | sed 's/^Sig//; s/0x/=0x/' >"$DIR/mask"
        . "$DIR/mask"
        printf '%s: %x\n' "$status" $((Cgt & ~Blk & ~faults)) | grep -v ': 0$'
    done
}

@test "no thread handles signals asynchronously, and a flood of signals stops the run as one does" {
    start_ranks 2 --set batch.steps=100000 --set batch.global_batch=1536 --set batch.micro_batch=64 \
        --set model.hidden=128 --set checkpoint.dir="$DIR/ckpt"
    eventually 30 steps_done 1
    processes=$(pgrep -f "^muster-train $DIR/job.cfg")
    [ "$(wc -w <<<"$processes")" -eq 2 ]
    for process in $processes; do
        [ -z "$(handled_anywhere "$process")" ]
    done
    while kill -0 "$run_pid" 2>/dev/null; do
        kill -USR1 $processes || true
        kill -HUP $processes || true
        kill -TERM $processes || true
    done 2>/dev/null
    stopped_with_75
    muster-ckpt verify "$DIR/ckpt"
}

@test "saves are staged also with long node names and large job ids" {
    name=gke-training-cluster-gpu-pool-a3-highgpu-8g-0123456789abcdef
    SLURM_JOB_ID=4294967295 SLURMD_NODENAME=$name ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 >"$DIR/log"
    cat "$DIR/log"
    grep -q 'checkpoint of step 10 saved in .*, of which training waited' "$DIR/log"
}

# bats test_tags=quick
@test "a checkpoint of 4 ranks is bit-identical after 1, 2, 3 and 8 ranks load and save it" {
    ranks 4 muster-train "$DIR/job.cfg" --set batch.steps=10 >/dev/null
    for n in 1 2 3 8; do
        code=0 # the time is over before the first step
        ranks "$n" muster-train "$DIR/job.cfg" --set batch.steps=11 --set checkpoint.load="$DIR/ckpt" \
            --set checkpoint.dir="$DIR/again$n" --set parallel.zero=$((n % 2)) --set report.metrics="" \
            --set report.minutes=1e-12 >/dev/null || code=$?
        [ "$code" -eq 75 ]
        [ "$(find "$DIR/again$n/step-00000010" -name 'shard-*' | wc -l)" -eq "$n" ]
        muster-ckpt diff "$DIR/ckpt/step-00000010" "$DIR/again$n/step-00000010"
    done
}

# bats test_tags=quick
@test "after a resume on fewer ranks, the losses match the uninterrupted run" {
    ranks 4 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/whole" --set report.metrics="$DIR/whole.jsonl" >/dev/null
    ranks 4 muster-train "$DIR/job.cfg" --set batch.steps=20 --set optimizer.decay_steps=50 >/dev/null
    ranks 3 muster-train "$DIR/job.cfg" --set optimizer.decay_steps=50 >"$DIR/log"
    grep -q 'at step 20' "$DIR/log"
    muster-report compare --tolerance 1e-5 "$DIR/metrics.jsonl" "$DIR/whole.jsonl"
}

@test "after a kill, the steps since the last checkpoint are repeated, and the metrics have each step once" {
    start_ranks 2 --set batch.steps=400 --set checkpoint.every=10
    eventually 30 steps_done 25
    pkill -KILL -f "muster-train $DIR/job.cfg"
    wait "$run_pid" || true
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=400 >>"$DIR/log"
    [ "$(wc -l <"$DIR/metrics.jsonl")" -eq 400 ]
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=400 --set checkpoint.dir="" \
        --set report.metrics="$DIR/whole.jsonl" >/dev/null
    muster-report compare --tolerance 0 "$DIR/metrics.jsonl" "$DIR/whole.jsonl"
}

@test "a damaged newest checkpoint is skipped with its reason; if all are damaged, the run ends with 65" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 --set checkpoint.every=10 >/dev/null
    truncate -s -4096 "$DIR/ckpt/step-00000020/shard-00001-of-00002.safetensors"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=12 --set checkpoint.dir="$DIR/else" --set checkpoint.load="$DIR/ckpt" \
        >"$DIR/log"
    grep -q 'skipped a checkpoint: .*step-00000020.*shard-00001-of-00002' "$DIR/log"
    grep -q 'at step 10' "$DIR/log"
    # In its own directory the broken one makes room for the same step, done again. All ranks find damage: no retries.
    truncate -s -4096 "$DIR/ckpt/step-00000020/shard-00000-of-00002.safetensors"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 --set checkpoint.every=10 >"$DIR/log"
    muster-ckpt verify "$DIR/ckpt/step-00000020"
    [ -d "$DIR/ckpt/step-00000020.broken" ]
    printf '{}' >"$DIR/ckpt/step-00000010/manifest.json"
    printf '{}' >"$DIR/ckpt/step-00000020/manifest.json"
    run ranks 2 muster-train "$DIR/job.cfg"
    [ "$status" -eq 65 ]
    echo "$output"
    [[ $output == *"none of its 2 checkpoints can be read"* ]]
    [ "$(grep -c 'muster-train:' <<<"$output")" -eq 1 ]
}

@test "a missing or wrong latest file has no effect" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 --set checkpoint.every=8 >/dev/null
    rm "$DIR/ckpt/latest"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=12 >"$DIR/log"
    grep -q '^resumed from .* at step 10 ' "$DIR/log"
    echo step-00000008 >"$DIR/ckpt/latest"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=14 >"$DIR/log"
    grep -q '^resumed from .* at step 12 ' "$DIR/log"
}

@test "another model's checkpoint is refused with 78 and both sizes" {
    ranks 1 muster-train "$DIR/job.cfg" --set batch.steps=10 >/dev/null
    run muster-train "$DIR/job.cfg" --set model.hidden=64
    [ "$status" -eq 78 ]
    [[ $output == *"256 x 32"*"256 x 64"* ]]
}

# bats test_tags=quick
@test "a fine-tune that would train nothing is refused with 78, and copies nothing; a finished run that starts again is not" {
    muster-train "$DIR/job.cfg" --set batch.steps=8 >/dev/null
    tune() { muster-train "$DIR/job.cfg" --set checkpoint.load="$DIR/ckpt" --set checkpoint.dir="$DIR/tuned" --set batch.steps="$1"; }
    for steps in 6 8; do
        run tune "$steps"
        echo "$output"
        [ "$status" -eq 78 ]
        [[ $output == *"batch.steps = $steps, and checkpoint.load = \"$DIR/ckpt\" is of step 8, which counts: "* ]]
        [ "$(find "$DIR/tuned" -name 'step-*' | wc -l)" -eq 0 ]
    done
    tune 9 | grep -x "done at step 9"
    tune 9 | grep "^nothing is left to train: batch.steps = 9"
}

@test "checkpoint.load of one step loads that step or fails, and a run with no steps left reports it" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 --set checkpoint.every=10 >/dev/null
    from() {
        ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=12 --set report.metrics="" --set checkpoint.load="$@"
    }
    from "$DIR/ckpt/step-00000010/" --set checkpoint.dir="$DIR/new" >"$DIR/log"
    grep -qx "resumed from $DIR/ckpt/step-00000010/ at step 10 (240 samples)" "$DIR/log"
    [ "$(newest "$DIR/new")" = step-00000012 ]
    [ "$(grep -c 'nothing is left' "$DIR/log")" -eq 0 ]
    # The other run's metrics stay whole, also where the job file still names them.
    from "$DIR/ckpt/step-00000010" --set checkpoint.dir="$DIR/branch" --set report.metrics="$DIR/metrics.jsonl" \
        >"$DIR/log"
    grep -qx "the metrics of an earlier run are now $DIR/metrics.jsonl.old" "$DIR/log"
    [ "$(wc -l <"$DIR/metrics.jsonl.old")" -eq 20 ]
    [ "$(wc -l <"$DIR/metrics.jsonl")" -eq 2 ]
    # It does not take a run back: its own checkpoints count first.
    for load in "$DIR/ckpt/step-00000010" "$DIR/ckpt"; do
        from "$load" --set checkpoint.dir="$DIR/ckpt" >"$DIR/log"
        grep -qx "resumed from $DIR/ckpt at step 20 (480 samples)" "$DIR/log"
        [ "$(grep -c "^checkpoint.load = \"$load\" was for the first start: the run goes on from its own checkpoints$" "$DIR/log")" -eq 1 ]
    done
    muster-train "$DIR/job.cfg" --set batch.steps=12 --set report.metrics="" --set checkpoint.dir="$DIR/new" >"$DIR/log"
    grep -qx "nothing is left to train: batch.steps = 12, counted from the first start of the run" "$DIR/log"
    for step in 15 10; do # one that is not there, one that is damaged: there are others, which were not meant
        truncate -s -4096 "$DIR"/ckpt/step-00000010/shard-*.safetensors
        code=0
        from "$DIR/ckpt/step-000000$step" --set checkpoint.dir="$DIR/none" >"$DIR/log" 2>&1 || code=$?
        cat "$DIR/log"
        [ "$code" -eq $((step == 15 ? 78 : 65)) ]
        grep -q "ckpt/step-000000$step" "$DIR/log"
    done
}

@test "a checkpoint.load directory without a checkpoint is refused with 78" {
    run ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 --set checkpoint.load="$DIR/misspelt"
    echo "$output"
    [ "$status" -eq 78 ]
    [[ $output == *'checkpoint.load = "'"$DIR/misspelt"'"'* ]]
    [ ! -e "$DIR/ckpt/step-00000010" ]
    # A run that has begun needs it no longer.
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 >/dev/null
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=10 --set checkpoint.load="$DIR/misspelt" >"$DIR/log"
    grep -q 'at step 10' "$DIR/log"
}

# goes_bad SET...: each step multiplies the weights by a million, until steps become bad and stay so; where that is
# depends on the machine's arithmetic. Parameters of bad steps must not be saved, those of all others must.
goes_bad() {
    local last
    rm -rf "$DIR/metrics.jsonl" "$DIR/ckpt"
    run ranks 2 muster-train "$DIR/job.cfg" --set optimizer.lr=1000 --set optimizer.weight_decay=1000 \
        --set optimizer.clip=0 --set optimizer.warmup_steps=0 --set checkpoint.every=1 --set checkpoint.keep=2 "$@"
    echo "$output"
    [ "$status" -eq 65 ]
    last=$(sed -n '/"skipped":0/s/.*"step":\([0-9]*\).*/\1/p' "$DIR/metrics.jsonl" | tail -n 1)
    [ "$last" -gt 1 ]
    [[ $output == *"up to step $((last + 10)); the last good checkpoint is step $last in"* ]]
    [ "$(newest "$DIR/ckpt")" = "$(printf 'step-%08d' "$last")" ]
    [ "$(ls "$DIR/ckpt" | grep -c '^step-')" -eq 2 ]
}

@test "a diverging run keeps its last good checkpoints" {
    goes_bad --set checkpoint.stage=
    goes_bad --set checkpoint.staged=16 # behind the training's back it is waited for; with room for all, none is put off
}

@test "an unreadable checkpoint on a failing file system is not skipped for an older one" {
    mkdir "$DIR/full"
    unshare -m mount -t tmpfs none "$DIR/full" || skip "may not mount"
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 --set checkpoint.every=10 >/dev/null
    cd "$DIR"
    code=0
    unshare -m bash -c 'mount -t tmpfs -o nr_inodes=14 none full && cp -r ckpt/step-* full &&
        rm full/step-00000020/shard-00001-of-00002.safetensors && { n=0; while mkdir full/$((n++)); do :; done; }
        "$@"' bash timeout 60 mpiexec.mpich -n 2 muster-train job.cfg --set checkpoint.load="$DIR/full" \
        --set checkpoint.dir="$DIR/new" >log 2>&1 || code=$?
    cat log
    [ "$code" -eq 74 ]
    grep -q 'full/step-00000020/.*: No such file or directory; it may be whole, because its file system fails: .*No space left' log
    run grep '^resumed from\|^skipped' log
    [ "$status" -eq 1 ]
}
