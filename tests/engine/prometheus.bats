# bats file_tags=more
# A run's file for Prometheus, as promtool reads it.
load ../helpers

setup() {
    need promtool
    tiny_job "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
    mkdir prom
    sed -i 's/steps = 50/steps = 100000/; s/log_every = 10/log_every = 1000; prometheus = "prom"/' job.cfg
    echo 'checkpoint = { dir = "ckpt"; every = 20; };' >>job.cfg
}

# begin: a run in the background, with its file
begin() {
    muster-train job.cfg "$@" >log 2>&1 &
    RUN=$!
    FILE=prom/muster-$(id -u)-$RUN.prom
    eventually 30 grep -q '^muster_checkpoint_step' "$FILE"
}

teardown() {
    kill "$RUN" 2>/dev/null || true
    wait
}

# value NAME: of the file
value() { sed -n "s/^muster_$1[ {].* //p" "$FILE"; }

now_larger() { [ "$(value "$1")" -gt "$2" ]; }

@test "promtool has nothing to say, the values rise, and the file is gone when the run has ended" {
    local step whole
    begin
    whole=$FILE FILE=seen
    cp "$whole" seen
    cat seen
    promtool check metrics <seen
    step=$(value step)
    [ "$(value tokens_total)" -eq $((step * 24 * 32)) ]
    [ "$(value checkpoint_step)" -le "$step" ] && [ "$(value checkpoint_step)" -ge 20 ]
    [ $(($(date +%s) - $(value checkpoint_timestamp_seconds | cut -d. -f1))) -lt 60 ]
    [ "$(value stage_bytes)" -gt 0 ]
    [ "$(value starts_total)" = 1 ]
    [ "$(find prom -perm 644)" = "$whole" ]
    FILE=$whole
    eventually 30 now_larger step "$step"
    kill "$RUN"
    wait "$RUN" || [ $? = 75 ]
    [ -z "$(ls prom)" ]
}

@test "a restart is counted by its cause, and the run's steps go on" {
    ranks 1 muster-train job.cfg --set batch.steps=40
    export MUSTER_RESTART='1 2 3 n2 rank 1 on n2 is dead (its process is gone), probably by SIGKILL'
    begin
    cp "$FILE" seen
    FILE=seen
    [ "$(value tokens_total)" -eq $((($(value step) - 40) * 24 * 32)) ] # of this start
    [ "$(value starts_total)" = 2 ]
    grep -q '^muster_restarts_total{.*,cause="dead"} 1$' "$FILE"
    [ "$(grep -c '^muster_restarts_total{.*} 0$' "$FILE")" -eq 8 ]
}

@test "a directory that is missing is said once; with it the file comes, and training has gone on" {
    rmdir prom
    muster-train job.cfg >log 2>&1 &
    RUN=$!
    FILE=prom/muster-$(id -u)-$RUN.prom
    eventually 30 steps_done 20
    sleep 11
    [ "$(grep -c '^the file for Prometheus cannot be written, which is tried again; training goes on: .*No such file' log)" = 1 ]
    mkdir prom
    eventually 30 grep -q '^the file for Prometheus can be written again$' log
    promtool check metrics <"$FILE"
}

@test "another user's file of that name is left and named, and so is a link" {
    [ "$(id -u)" = 0 ] || skip "only root can give a file away"
    FILE=prom/muster-0-77.prom
    echo theirs >"$FILE"
    chown 65534 "$FILE"
    SLURM_JOB_ID=77 muster-train job.cfg >log 2>&1 &
    RUN=$!
    eventually 30 grep -q "^the file for Prometheus cannot be written.*: $FILE is another user's, or no regular file; remove it$" log
    [ "$(cat "$FILE")" = theirs ]
    rm "$FILE"
    ln -s ../job.cfg "$FILE"
    sleep 11
    [ -L "$FILE" ]
    kill "$RUN"
    wait "$RUN" || [ $? = 75 ]
    [ -L "$FILE" ]
}
