#!/usr/bin/env bats
# bats file_tags=more
# muster-plan sweep and etc/sweep.sbatch, as they are shipped.
load helpers

setup_file() {
    plugin_sandbox 4
}

setup() {
    skip_if "$WHY_NOT"
    unset MUSTER_JOB
    cd "$BATS_TEST_TMPDIR" || return
    tiny_job .
    sed -i 's/heads = 2/heads = 4/' job.cfg
    echo 'checkpoint = { dir = "ckpt"; every = 1; };' >>job.cfg
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    tail -n +1 table/rows table/row-*.out table/row-? table/row-?? 2>/dev/null
    tail -n 20 "$SANDBOX_DIR/log/slurmctld.log"
    scancel --user "$(id -un)"
    eventually 30 all_idle
}

# results_are N: as many rows have a result, or more
results_are() {
    [ "$(find table -name 'row-*' ! -name '*.*' | wc -l)" -ge "$1" ]
}

# submit LINE: what muster-plan has printed, until it ends
submit() {
    [ "$(wc -l <<<"$1")" -eq 1 ]
    # shellcheck disable=SC2086
    sbatch --wait ${1#sbatch }
}

# column NAME ROW: of table.csv, as Python reads it
column() {
    python3 -c 'import csv, sys; print(list(csv.DictReader(open("table/table.csv")))[int(sys.argv[2]) - 1][sys.argv[1]])' "$@"
}

@test "a sweep of 12 rows that is cancelled in the middle goes on with the same command; its table has all rows" {
    # 50 MiB, 32 of them for the process, suffice for 12 samples at once on two tp ranks, and not on one.
    line=$(muster-plan sweep table job.cfg --set model.seq_length=128 --steps 4 --row "nodes=2 parallel.tp=3" \
        --row "nodes=2 parallel.mesh=auto parallel.machine=a64fx" \
        --try nodes=2 --try parallel.tp=1,2 --try batch.micro_batch=1,2,3,12,max)
    line="sbatch --mem=50 ${line#sbatch }"
    [ "$(wc -l <table/rows)" -eq 12 ]
    # shellcheck disable=SC2086
    job=$(sbatch --parsable ${line#sbatch })
    eventually 60 results_are 3
    scancel "$job"
    eventually 30 all_idle
    find table -name 'row-*' ! -name '*.*' -printf '%f %i\n' | sort >before
    [ "$(wc -l <before)" -lt 12 ]

    submit "$line"
    results_are 12
    find table -name 'row-*' ! -name '*.*' -printf '%f %i\n' | sort >after
    [ -z "$(comm -23 before after)" ] # a row with a result has not been run again
    muster-plan sweep table --table --machine a64fx >table.md
    cat table.md
    [ "$(wc -l <table.md)" -eq 14 ]
    grep -q '^|   1 | nodes=2 parallel.tp=3 .* refused: table/row-1.cfg:[0-9]*: parallel.tp = 3 does not divide' table.md
    [ "$(grep -c '| out of memory: 1 rank on n. would hold ' table.md)" -eq 1 ]
    [[ $(column keys 6) == *"tp=1 batch.micro_batch=12" && $(column note 6) == "out of memory: "*" the job's memory limit "* ]]
    for row in 2 3 4 5 7 {8..12}; do
        [[ $(column ms_per_step "$row") == *[1-9]* && $(column max_mib "$row") == *[1-9]* ]]
        grep -q "^done at step 4" "table/row-$row.log" || [[ $row == @(7|12) ]] # their last run was out of memory
        [ "$row" = 2 ] || [ "$(column dp "$row")x$(column tp "$row")" = $((row < 8 ? 2 : 1))x$((row < 8 ? 1 : 2)) ]
    done
    for row in 7 12; do
        [[ $(column note $row) == "micro-batch $(($(column micro_batch $row) + 1)): out of memory: "* ]]
    done
    [ "$(column micro_batch 7)" -lt "$(column micro_batch 12)" ]
    [ ! -e ckpt ]
    run -65 muster-plan predict --machine a64fx table/table.csv
    echo "$output" >predicted
    [[ $output == *"table/table.csv: 1 of 12 rows are not predicted"* ]] # the refused one
    [ "$(grep -c ',true$' predicted)" -eq 11 ]
}

@test "a row that takes too long is a row, and a rank that fails otherwise is named" {
    line=$(muster-plan sweep table job.cfg --row "batch.steps=1000000" --row "data.train=missing" --row "device=cpu")
    submit "$line 3"
    muster-plan sweep table --table
    [ "$(column note 1)" = "timed out after 3 s" ]
    [[ $(column note 2) == "failed with exit code "*"missing"* ]]
    [ -z "$(column note 3)" ]
}

# bats test_tags=quick
# In the place of srun stands a script for which more than 5 samples of the 24 are too many.
@test "the largest micro-batch that fits is found by bisection, which a cancelled task continues" {
    mkdir bin
    cat >bin/srun <<'SH'
#!/bin/sh
for cfg; do :; done
micro=$(sed -n 's/^#! --set batch.micro_batch=//p' "$cfg")
echo "$micro" >>tried
[ ! -e stop ] || [ "$micro" -lt 8 ] || { rm stop; scancel "$SLURM_JOB_ID"; sleep 60; }
[ "$micro" -le 5 ] || { echo "muster-train: 1 rank on n1 would hold $micro GiB, and it has 5 GiB"; exit 78; }
for step in 1 2 3; do
    echo "{\"step\":$step,\"consumed_samples\":$((24 * step)),\"step_seconds\":0.$step,\"world\":1,\"dp\":1}"
done >table/row-1.jsonl
SH
    chmod +x bin/srun
    line=$(PATH=$PWD/bin:$PATH muster-plan sweep table job.cfg --try batch.micro_batch=max)
    touch stop
    PATH=$PWD/bin:$PATH submit "$line" || true
    [ ! -e table/row-1 ]
    PATH=$PWD/bin:$PATH submit "$line"
    [ "$(tr '\n' ' ' <tried)" = "1 2 4 8 8 6 5 " ] # only the run that was cancelled is repeated
    muster-plan sweep table --table
    [ "$(column micro_batch 1) $(column ms_per_step 1)" = "5 200.00" ]
    [ "$(column note 1)" = "micro-batch 6: out of memory: 1 rank on n1 would hold 6 GiB, and it has 5 GiB" ]
}

# In the place of srun stands a script that ends each row in another way.
# bats test_tags=quick
@test "a rank that the OOM killer ended and a GPU without memory are rows; a lost rank is not, and its row is run again" {
    mkdir bin
    cat >bin/srun <<'SH'
#!/bin/sh
case $SLURM_ARRAY_TASK_ID in
1) echo "srun: error: n1: task 0: Killed" >&2; exit 137 ;;
2) printf 'slurmstepd: error: Detected 1 oom_kill event in StepId=1.0\nsrun: error: n1: task 0: Exited with exit code 76\n'; exit 76 ;;
3) echo "muster-train: rank 0: cudaMalloc of 9 GiB: out of memory" >&2; exit 74 ;;
4) echo "muster-train: rank 1 on n2 is dead" >&2; exit 76 ;;
esac
SH
    chmod +x bin/srun
    line=$(muster-plan sweep table job.cfg --try parallel.zero=0,1,2,3)
    PATH=$PWD/bin:$PATH submit "$line" || true
    muster-plan sweep table --table
    [ "$(column note 1)" = "out of memory: a rank was killed" ]
    [ "$(column note 2)" = "out of memory: error: Detected 1 oom_kill event in StepId=1.0" ]
    [ "$(column note 3)" = "out of memory: rank 0: cudaMalloc of 9 GiB: out of memory" ]
    [ "$(column note 4)" = "not run yet" ]
    grep -q '^sweep.sbatch: row 4 ended with 76 and has no result; see table/row-4.log' table/row-4.out
    submit "$line"
    muster-plan sweep table --table
    [ "$(column note 1)" = "out of memory: a rank was killed" ]
    [[ -z $(column note 4) && $(column ms_per_step 4) == *[1-9]* ]]
}

# bats test_tags=quick
@test "the job files that come with muster can be swept" {
    for job in "$TOP"/etc/*.cfg; do
        line=$(muster-plan sweep "$(basename "$job" .cfg)" "$job" --try nodes=1,2 --try parallel.zero=1,2)
        [ "$(grep -c '^sbatch --array=[13]-[24] .* --nodes=[12] /' <<<"$line")" -eq 2 ]
    done
}

# bats test_tags=quick
@test "a sweep without a valid row, a directory that exists, and a task without a row are refused" {
    run muster-plan sweep table job.cfg --try parallel.tpp=1,2
    [ "$status" -eq 78 ]
    [[ $output == *"--set parallel.tpp=1: "*"did you mean 'parallel.tp'?"* ]]
    [ ! -e table ]
    mkdir table
    run muster-plan sweep table job.cfg --try parallel.tp=1,2
    [ "$status" -eq 74 ]
    [[ $output == *"table: a sweep needs a new directory"* ]]
    run env SLURM_ARRAY_TASK_ID=2 bash "$TOP/etc/sweep.sbatch" table
    [ "$status" -eq 64 ]
    [[ $output == *"no row 2 in table/rows"* ]]
}
