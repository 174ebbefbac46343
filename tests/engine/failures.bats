# When something fails on one rank alone, or cannot be written: nobody hangs, the true reason is said once, nothing is
# lost.
load ../helpers

setup() {
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    export RANKS_SECONDS=30
}

# unlike JOB JOB [ARGUMENT...]: two ranks with a job file each
unlike() {
    local a=$1 b=$2
    shift 2
    timeout -k 5 30 mpiexec.mpich -n 1 muster-train "$a" "$@" : -n 1 muster-train "$b" "$@"
}

# said CODE WORDS: the run ended with that code, and one line of muster-train's has these words
said() {
    echo "exit $status: $output"
    [ "$status" -eq "$1" ] && [ "$(grep -c '^muster-train: ' <<<"$output")" -eq 1 ] && [[ $output == *"$2"* ]]
}

@test "a job file that is missing on one rank ends the run with 78 in one line" {
    run unlike "$DIR/job.cfg" "$DIR/nothing.cfg"
    said 78 "$DIR/nothing.cfg"
    [ "${#lines[@]}" -eq 1 ] # mpiexec takes none of the ranks for crashed; it would say so, and might lose the code
}

@test "ranks with different job files are refused with 78" {
    sed 's/lr = 3e-3/lr = 1e-3/' "$DIR/job.cfg" >"$DIR/other.cfg"
    run unlike "$DIR/job.cfg" "$DIR/other.cfg"
    said 78 "rank 1 reads another job file than rank 0"
}

@test "ranks with one job file and different options --set" {
    run timeout -k 5 30 mpiexec.mpich -n 1 muster-train "$DIR/job.cfg" : \
        -n 1 muster-train "$DIR/job.cfg" --set optimizer.lr=1e-3
    said 78 "rank 1 has other options --set than rank 0: give all ranks the same"
}

@test "ranks with different job files are refused, also when one does not fit the number of ranks" {
    sed 's/zero = 1;/zero = 1; pp = 3;/' "$DIR/job.cfg" >"$DIR/other.cfg"
    run unlike "$DIR/job.cfg" "$DIR/other.cfg"
    said 78 "rank 1 reads another job file than rank 0"
    sed 's/report = {/report = { hang_seconds = 0.0;/' "$DIR/job.cfg" >"$DIR/other.cfg"
    run unlike "$DIR/job.cfg" "$DIR/other.cfg"
    said 78 "rank 1 reads another job file than rank 0"
}

@test "an error on all ranks is reported in one line" {
    # The code may be that of a rank which mpiexec killed because another had ended.
    for _ in $(seq 15); do
        run ranks 4 muster-train "$DIR/job.cfg" --set batch.global_batch=3 --set batch.micro_batch=1
        said "$status" "batch.global_batch = 3"
        [ "$status" -ne 0 ]
    done
}

@test "ranks with different data are refused with 65" {
    mkdir "$DIR/a" "$DIR/b"
    cp "$DIR"/train.* "$DIR/a/"
    cp "$DIR/valid.bin" "$DIR/b/train.bin"
    cp "$DIR/valid.idx" "$DIR/b/train.idx"
    sed -i 's/train = "[^"]*"/train = "train"/' "$DIR/job.cfg"
    run timeout -k 5 30 mpiexec.mpich -n 1 -wdir "$DIR/a" muster-train "$DIR/job.cfg" : \
        -n 1 -wdir "$DIR/b" muster-train "$DIR/job.cfg"
    said 65 "rank 1 reads different data than rank 0"
}

@test "an invalid token read by one rank ends all ranks with 65 and that rank's error" {
    printf '\373' | dd of="$DIR/train.bin" bs=1 seek=100000 conv=notrunc status=none
    run ranks 3 muster-train "$DIR/job.cfg" --set model.vocab=250 --set batch.steps=3000
    said 65 "251"
    [[ $output == *"rank "* ]]
}

@test "metrics that cannot be written are reported once, and training continues" {
    run ranks 2 muster-train "$DIR/job.cfg" --set report.metrics=/dev/full --set checkpoint.dir="$DIR/ckpt"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'metrics cannot be written' <<<"$output")" -eq 1 ]
    muster-ckpt verify "$DIR/ckpt"
}

# steps_of FILE: the steps of its lines
steps_of() { sed 's/^{"step":\([0-9]*\),.*/\1/' "$1" | xargs; }

# writer_fails CALL:N:HOW[+]: those calls of the process that writes the metrics
writer_fails() {
    SHIM=$BUILD/tests/crash/.libs/libshim.so
    [ -e "$SHIM" ] || skip "the crash tests' shim is not built"
    export LD_PRELOAD=$SHIM SHIM_PROGRAM=muster-report SHIM_ROOT=$DIR/metrics.jsonl SHIM_FAIL=$1 SHIM_GO=$DIR/go
}

@test "a resumed run whose metrics cannot be cut appends nothing to them, trains, and says which steps are missing" {
    cd "$DIR"
    ranks 1 muster-train job.cfg --set batch.steps=10 --set checkpoint.dir=ckpt --set checkpoint.every=5 >log
    rm -r ckpt/step-00000010
    cp metrics.jsonl before
    (writer_fails ftruncate:1:EIO+ && ranks 2 muster-train job.cfg --set batch.steps=12 --set checkpoint.dir=ckpt >log)
    cat log
    [ "$(grep -c '^metrics cannot be written, which is tried again; training goes on: cannot cut metrics ' log)" -eq 1 ]
    grep -q '^metrics of steps 6 to 12 may be missing: cannot cut metrics ' log
    grep -q '^done at step 12' log
    cmp before metrics.jsonl
    ranks 1 muster-train job.cfg --set batch.steps=14 --set checkpoint.dir=ckpt >log
    cat log
    grep -q '^the metrics .*/metrics.jsonl lack steps 11 to 12$' log
    [ "$(steps_of metrics.jsonl)" = "1 2 3 4 5 6 7 8 9 10 13 14" ]
}

# fill_disk [long]: a run whose metrics are on a full disk, which has room again after a while
fill_disk() {
    cd "$DIR"
    unshare -m mount -t tmpfs none "$DIR" 2>/dev/null || skip "may not mount"
    mkdir full
    timeout 90 unshare -m bash -c 'mount -t tmpfs -o size=20m none full && head -c 20400k /dev/zero >full/other
        timeout 60 muster-train job.cfg --set report.metrics=full/m --set batch.steps=1000000 \
            --set report.log_every=1000 --set report.kill_file=stop --set optimizer.decay_steps=100 >log 3>&- &
        until grep -q "^metrics cannot be written" log; do sleep 0.1; done
        [ "$1" != long ] || until grep -q "^ iteration     6000/" log; do sleep 0.1; done # more than a MiB of lines
        rm full/other
        until grep -q "^metrics are written again" log; do sleep 0.1; done
        [ "$1" != long ] || until grep -q "^metrics of steps" log; do sleep 0.1; done
        touch stop
        wait
        mv full/m .' - "$1"
    cat log
}

@test "metrics are written when the disk has room again" {
    fill_disk
    grep -q '^metrics cannot be written, which is tried again; training goes on: .*[Nn]o space ' log
    [ "$(steps_of m)" = "$(seq "$(wc -l <m)" | xargs)" ]
    [ "$(grep -c '^metrics of steps' log)" -eq 0 ]
}

# bats test_tags=more
@test "of the metrics of a long time without room, a MiB is kept, and the steps that are missing are said" {
    fill_disk long
    read -r first last <<<"$(sed -n 's/^metrics of steps \([0-9]*\) to \([0-9]*\) are missing: .*[Nn]o space .*/\1 \2/p' log)"
    [ "$(steps_of m)" = "$(echo $(seq $((first - 1))) $(seq $((last + 1)) $((last - first + 1 + $(wc -l <m)))))" ]
}

@test "a process that writes metrics and is killed is started again, and each step is in the file once" {
    cd "$DIR"
    muster-train job.cfg --set batch.steps=1500 --set optimizer.decay_steps=100 >log 3>&- &
    eventually 30 steps_done 100
    pkill -KILL -f "^[^ ]*muster-report --write=[^ ]* $DIR/metrics.jsonl"
    wait $!
    cat log
    grep -q '^metrics cannot be written.*muster-report --write has ended' log
    [ "$(steps_of metrics.jsonl)" = "$(seq 1500 | xargs)" ]
}

@test "of two runs that share their metrics, the later one writes NAME.JOBID while the other lives" {
    cd "$DIR"
    muster-train job.cfg --set batch.steps=1000000 --set optimizer.decay_steps=100 --set report.kill_file=stop >first 3>&- &
    eventually 30 steps_done 5
    SLURM_JOB_ID=4711 muster-train job.cfg --set batch.steps=20 >log
    cat log
    touch stop
    wait $! || [ $? -eq 78 ] # without checkpoint.dir
    grep -q "^another run has the metrics $DIR/metrics.jsonl: those of this run are in $DIR/metrics.jsonl.4711$" log
    [ "$(steps_of metrics.jsonl.4711)" = "$(seq 20 | xargs)" ]
    [ "$(steps_of metrics.jsonl)" = "$(seq "$(wc -l <metrics.jsonl)" | xargs)" ]
    [ ! -e metrics.jsonl.old ]
    [ "$(grep -c 'metrics' first)" -eq 0 ]
}

@test "a run whose metrics never answer trains and ends, and says so" {
    cd "$DIR"
    (writer_fails open:1:WAIT && muster-train job.cfg --set checkpoint.dir=ckpt --set checkpoint.every=10 >log)
    cat log
    grep -q "^the metrics .*/metrics.jsonl are not open yet: training does not wait for them$" log
    [ "$(grep -c '^metrics may lack steps up to this checkpoint: the file does not answer$' log)" -eq 1 ]
    grep -q '^done at step 50$' log
    grep -q '^metrics of steps 1 to 50 may be missing: the file does not answer$' log
    touch go
    eventually 10 eval '[ "$(wc -l <metrics.jsonl)" -eq 50 ]'
}

@test "a run whose kill-switch file cannot be looked for trains and ends, and TERM stops it" {
    cd "$DIR"
    mkdir stuck
    (writer_fails stat:1:WAIT+ && SHIM_ROOT=$DIR/stuck && timeout 60 muster-train job.cfg --set batch.steps=1000000 \
        --set optimizer.decay_steps=50 --set report.kill_file="$DIR/stuck/stop" --set checkpoint.dir=ckpt >log 3>&-) &
    eventually 30 steps_done 20
    pkill -TERM -f "^muster-train job.cfg .*$DIR/stuck/stop"
    wait $! || [ $? -eq 75 ]
    cat log
    grep -q "^nothing is known yet of the kill-switch file $DIR/stuck/stop: training does not wait for that$" log
    grep -q '^stopping after step .*: signal 15 ' log
    touch go
}

@test "damaged lines of the metrics are said once, at one restart; the others are kept, and the run trains" {
    cd "$DIR"
    ranks 2 muster-train job.cfg --set batch.steps=10 --set checkpoint.dir=ckpt >log
    head -c 512 /dev/zero >zeros
    { sed -n 1,4p metrics.jsonl && cat zeros && sed -n 5p metrics.jsonl && sed -n 6,10p metrics.jsonl; } >damaged
    cp damaged metrics.jsonl
    ranks 2 muster-train job.cfg --set batch.steps=12 --set checkpoint.dir=ckpt >log
    cat log
    grep -q '^warning: .*metrics.jsonl:5: .*; 1 such line is left out .*the file as it was: .*metrics.jsonl.damaged)$' log
    [ "$(grep -c 'left out' log)" -eq 1 ]
    cmp damaged metrics.jsonl.damaged
    muster-report summary metrics.jsonl
    [ "$(sed 's/.*"step":\([0-9]*\),.*/\1/' metrics.jsonl | xargs)" = "1 2 3 4 6 7 8 9 10 11 12" ]
    ranks 2 muster-train job.cfg --set batch.steps=13 --set checkpoint.dir=ckpt >log
    [ "$(grep -c 'left out' log)" -eq 0 ]
}

@test "a FIFO that nobody reads, a directory or a socket for the metrics: 78 in one line, at once" {
    mkfifo "$DIR/fifo"
    run ranks 2 muster-train "$DIR/job.cfg" --set report.metrics="$DIR/fifo"
    said 78 "metrics $DIR/fifo: it is a FIFO that nobody reads; start the reader first, or name a file"
    run ranks 2 muster-train "$DIR/job.cfg" --set report.metrics="$DIR"
    said 78 "metrics $DIR: it is a directory; name a file"
    rm "$DIR/train.idx"
    mkfifo "$DIR/train.idx" # nor does any other file of a run
    run ranks 2 muster-train "$DIR/job.cfg"
    said 65 "$DIR/train.idx is not a regular file"
}

@test "metrics go to a FIFO with a reader, to standard output and to /dev/null" {
    mkfifo "$DIR/fifo"
    cat "$DIR/fifo" >"$DIR/read" 3>&- &
    muster-train "$DIR/job.cfg" --set batch.steps=6 --set report.metrics="$DIR/fifo" >"$DIR/log"
    wait $!
    [ "$(wc -l <"$DIR/read")" -eq 6 ]
    muster-train "$DIR/job.cfg" --set batch.steps=6 --set report.metrics=/dev/stdout | tee "$DIR/log"
    [ "$(grep -c '^{"step":' "$DIR/log")" -eq 6 ]
    muster-train "$DIR/job.cfg" --set batch.steps=6 --set report.metrics=/dev/null >"$DIR/log"
    [ "$(grep -c 'metrics' "$DIR/log")" -eq 0 ]
}

@test "a checkpoint directory that cannot be created is refused before the first step" {
    run ranks 2 muster-train "$DIR/job.cfg" --set checkpoint.dir=/proc/nowhere
    said 74 /proc/nowhere
    [ ! -s "$DIR/metrics.jsonl" ]
}

@test "saves stay in memory while the checkpoint directory is missing, and are drained when it is back" {
    sed -i 's/steps = 50/steps = 100000/' "$DIR/job.cfg"
    RANKS_SECONDS=120 ranks 2 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" --set checkpoint.every=50 \
        --set report.kill_file="$DIR/stop" >"$DIR/log" 2>&1 3>&- &
    pid=$!
    eventually 60 test -d "$DIR/ckpt/step-00000100"
    mv "$DIR/ckpt" "$DIR/away"
    eventually 60 grep -q 'drain failed, it stays in' "$DIR/log"
    [ ! -e "$DIR/ckpt" ] # its file system may not be mounted: nothing is written beneath
    mv "$DIR/away" "$DIR/ckpt"
    eventually 60 grep -q 'the drain to .* works again' "$DIR/log"
    touch "$DIR/stop"
    wait $pid || [ $? = 75 ]
    cat "$DIR/log"
    step=$(sed -n 's/.*checkpoint of step \([0-9]*\) saved.*/\1/p' "$DIR/log" | tail -n 1)
    muster-ckpt verify "$DIR/ckpt/step-$(printf '%08d' "$step")"
}

@test "old checkpoints that cannot be removed are reported once, and the run's own are still removed" {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to be two users"
    chmod 711 "$DIR" "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR"
    another_user_can -x "$BUILD/muster-train" -a -r "$DIR/job.cfg" || skip "another user cannot get at the build"
    ranks 1 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" --set batch.steps=10 >/dev/null
    chmod 1777 "$DIR/ckpt"
    steps=20
    for stage in "$BATS_TEST_TMPDIR/stage" ""; do
        [ -z "$stage" ] || mkdir -m 777 "$stage"
        run timeout 60 setpriv --reuid=65534 --clear-groups "$BUILD/muster-train" "$DIR/job.cfg" \
            --set report.metrics= --set checkpoint.dir="$DIR/ckpt" --set checkpoint.every=5 --set checkpoint.keep=1 \
            --set checkpoint.stage="$stage" --set batch.steps=$steps
        echo "$output"
        [ "$status" -eq 0 ]
        [ "$(grep -c "^.*removing old checkpoints failed: .*step-00000010" <<<"$output")" -eq 1 ]
        [ "$(cd "$DIR/ckpt" && echo step-*)" = "step-00000010 step-000000$steps" ]
        steps=40
    done
}

@test "more threads than processors are reported before the first step, more ranks than processors not" {
    cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
    OMP_NUM_THREADS=2 run ranks 2 taskset -c "$cpu" muster-train "$DIR/job.cfg" --set batch.steps=6
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"2 ranks on "*" compute with 4 threads on 1 processor, "*"set OMP_NUM_THREADS=1, or give"* ]]
    OMP_NUM_THREADS=1 run ranks 2 taskset -c "$cpu" muster-train "$DIR/job.cfg" --set batch.steps=6
    [ "$status" -eq 0 ]
    [[ $output != *"very slow"* ]]
}

@test "a file size limit fails saves and metrics with an error message, and training continues" {
    sed -i 's/steps = 50/steps = 100/' "$DIR/job.cfg"
    ulimit -f 20 # KiB
    run timeout 60 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" --set checkpoint.every=50
    echo "$output"
    [ "$status" -eq 74 ]
    [[ $output == *"checkpoint of step 50 failed: "*": File too large; training goes on"* ]]
    [[ $output == *"metrics cannot be written, which is tried again; training goes on: "*": File too large"* ]]
    [[ ${lines[-2]} == "muster-train: checkpoint of step 100 failed: "*": File too large" ]]
}

@test "a run that starts from scratch keeps the metrics of the previous run" {
    ranks 1 muster-train "$DIR/job.cfg" >/dev/null
    ranks 1 muster-train "$DIR/job.cfg" >"$DIR/log"
    grep -q 'metrics of an earlier run are now' "$DIR/log"
    [ "$(wc -l <"$DIR/metrics.jsonl.old")" -eq 50 ]
    [ "$(wc -l <"$DIR/metrics.jsonl")" -eq 50 ]
}

@test "a checkpoint of a run with another seed is refused with 78" {
    ranks 1 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" >/dev/null
    run ranks 2 muster-train "$DIR/job.cfg" --set checkpoint.dir="$DIR/ckpt" --set batch.seed=9 --set batch.steps=60
    said 78 "batch.seed = 1"
}

@test "a checkpoint that only one rank cannot read is not treated as damaged" {
    ranks 2 muster-train "$DIR/job.cfg" --set batch.steps=20 --set checkpoint.dir="$DIR/ckpt" --set checkpoint.every=10 >/dev/null
    sed -i "\$a checkpoint = { dir = \"ckpt\"; };" "$DIR/job.cfg"
    mkdir -p "$DIR/other/ckpt" # where rank 1 looks: the directory is there, and as yet empty, as on a slow NFS
    (sleep 2; cp -r "$DIR"/ckpt/step-* "$DIR/other/ckpt/") &
    # The run is done at step 20: it loads and has nothing to save.
    run timeout -k 5 60 mpiexec.mpich -n 1 -wdir "$DIR" muster-train "$DIR/job.cfg" --set batch.steps=20 : \
        -n 1 -wdir "$DIR/other" muster-train "$DIR/job.cfg" --set batch.steps=20
    echo "$output"
    [[ $output == *"resumed from ckpt at step 20"* ]]
    [ -d "$DIR/ckpt/step-00000020" ]
    [ ! -e "$DIR/ckpt/step-00000020.broken" ]
}

@test "a validation that would count samples twice is refused" {
    run muster-train "$DIR/job.cfg" --set report.eval_every=10 --set report.eval_batches=1000
    said 78 "(1000 batches of 24): lower report.eval_batches"
}

# bats test_tags=quick
@test "two ranks train where /dev/shm has 64 KiB, or is read-only, and one line says so" {
    unshare -m mount -t tmpfs none /dev/shm || skip "may not mount"
    for option in size=64k ro; do
        unshare -m bash -c 'mount -t tmpfs -o "$0" none /dev/shm && timeout 60 mpiexec.mpich -n 2 muster-train "$@"' $option \
            "$DIR/job.cfg" --set batch.steps=6 --set checkpoint.dir="$BATS_TEST_TMPDIR/$option" >"$DIR/log" 2>"$DIR/err"
        cat "$DIR/log" "$DIR/err"
        grep -qx "done at step 6" "$DIR/log"
        [ -e "$BATS_TEST_TMPDIR/$option/step-00000006/manifest.json" ]
        [ "$(wc -l <"$DIR/err")" -eq 1 ]
        grep -q "^muster-train: warning: /dev/shm .* for MPI's shared memory: this run sets UCX_TLS=" "$DIR/err"
    done
}

@test "ranks that need more memory than the host has are refused before they allocate it" {
    ulimit -v 16000000 # should they take it all the same
    run ranks 2 muster-train "$DIR/job.cfg" --set model.layers=4096 --set model.hidden=4096
    said 78 "2 ranks on "
    [[ $output == *"--plan"* ]]
}

# A control group of our own, of either version; in $group, or skipped.
limited_group() {
    local version
    for version in "/sys/fs/cgroup/memory memory.limit_in_bytes" "/sys/fs/cgroup memory.max"; do
        group=${version% *}/muster-test-$$
        { mkdir "$group" && [ -e "$group/cgroup.procs" ] && echo "$1" >"$group/${version#* }"; } 2>/dev/null && return
        rmdir "$group" 2>/dev/null || true
    done
    group=
    skip "may not make a control group that limits memory"
}

teardown() {
    [ ! -d "${group:-}" ] || eventually 10 rmdir "$group"
}

@test "ranks that need more than the job's memory limit are refused before the OOM killer acts" {
    limited_group 200M
    run bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' bash "$group" timeout 60 mpiexec.mpich -n 2 \
        muster-train "$DIR/job.cfg" --set model.layers=8 --set model.hidden=512
    [[ $output == *"2 ranks on "*" would hold "*"the job's memory limit there is 0.195 GiB: ask for more"* ]]
    said 78 "sbatch --mem"
}

# within LIMIT SET...: the tiny job with a larger model, in the group with that limit; muster-train's exit code is $status
within() {
    limited_group "$1"
    shift
    run bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' bash "$group" muster-train "$DIR/job.cfg" \
        --set model.layers=4 --set model.hidden=192 --set model.heads=4 --set model.seq_length=128 \
        --set batch.micro_batch=1 --set batch.steps=6 "$@"
    echo "$output"
    eventually 10 rmdir "$group"
}

@test "the process itself counts: a run whose buffers alone fit the memory limit is refused, and never killed" {
    local mib most=0
    for mib in 46 50 54 58 64 72 80; do # the buffers are 48.4 MiB
        within "${mib}M" --set parallel.mesh=given
        [[ $status == @(0|78) ]]
        [ "$status" = 0 ] || most=$mib
    done
    [ "$most" -ge 54 ] && [ "$status" = 0 ]
    within "54M" --set parallel.mesh=auto --set parallel.machine=a64fx --set parallel.recompute=none
    said 78 "nothing fits 1 rank"
}

@test "what the ranks have not touched yet is no room for a stage: saves are written directly, and no rank is killed" {
    within 90M --set checkpoint.dir="$DIR/ckpt" --set checkpoint.every=2
    [ "$status" -eq 0 ]
    [[ $output == *"checkpoints are written directly to "*", the job's memory limit has "*" left"* ]]
    muster-ckpt verify "$DIR/ckpt"
}

@test "a save that does not fit the job's memory limit is written directly, and no rank is killed" {
    limited_group 180M
    run bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' bash "$group" timeout 60 mpiexec.mpich -n 1 \
        muster-train "$DIR/job.cfg" --set model.layers=4 --set model.hidden=384 --set batch.steps=6 \
        --set checkpoint.every=2 --set checkpoint.dir="$DIR/ckpt"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"checkpoints are written directly to "*", the job's memory limit has "*" left"* ]]
    muster-ckpt verify "$DIR/ckpt"
}

@test "a run whose job file keeps no weights or no metrics says so at its start, and which keys keep them" {
    cd "$DIR"
    local lacks=(--set batch.steps=6 --set report.metrics=)
    muster-train job.cfg "${lacks[@]}" >log
    grep -qx 'not kept when the run ends: its weights (set checkpoint.dir), its metrics (set report.metrics)' log
    muster-train job.cfg "${lacks[@]}" --set checkpoint.dir=ckpt >log
    grep -qx 'not kept when the run ends: its metrics (set report.metrics)' log
    muster-train job.cfg --set batch.steps=6 --set checkpoint.dir=ckpt2 >log
    [ "$(grep -c 'not kept' log)" -eq 0 ]
}
