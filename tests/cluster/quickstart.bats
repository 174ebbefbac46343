# bats file_tags=more
# The main job, end to end: what ./quickstart shows a newcomer, and the promises in it.
load helpers

setup_file() {
    # Not in bats' own directory, which an ordinary user cannot enter.
    export OUT
    OUT=$(mktemp -d /tmp/muster-quickstart-test.XXXXXX)
    chmod 755 "$OUT"
    command -v slurmctld mpiexec.mpich bible >/dev/null || return 0
    local quickstart=("$TOP/quickstart")
    if [ -n "${MUSTER_TEST_SLURM:-}" ]; then
        quickstart+=(--slurm "$MUSTER_TEST_SLURM")
        PATH=${PATH//"$slurm/sbin:$slurm/bin:"/} # else ./setup configures build/ for that Slurm
    fi
    # Two at once, the second as an ordinary user where we are root, on other nodes and another text. Newer releases of
    # Slurm refuse nobody for SlurmUser.
    mkdir -m 777 "$OUT/first" "$OUT/second"
    local as=()
    [ "$(id -u)" != 0 ] || as=(setpriv --reuid=games --regid=games --clear-groups env HOME="$OUT/second")
    TMPDIR=$OUT/second timeout -k 10 900 "${as[@]}" "${quickstart[@]}" --nodes 3 --steps 60 --text "$TOP/LICENSE" \
        >"$OUT/second.log" 2>&1 3>&- &
    local second=$! code=0
    TMPDIR=$OUT/first timeout -k 10 900 "${quickstart[@]}" >"$OUT/first.log" 2>&1 3>&- || code=$?
    echo "$code" >"$OUT/first.code"
    code=0
    wait "$second" || code=$?
    echo "$code" >"$OUT/second.code"
    # A third, whose user presses Ctrl-C, and once more when it takes its time.
    mkdir "$OUT/third"
    # Whatever runs in the background here has INT ignored, which a shell cannot undo.
    TMPDIR=$OUT/third env --default-signal=INT setsid timeout -k 120 300 "${quickstart[@]}" \
        >"$OUT/third.log" 2>&1 3>&- &
    local third=$!
    for _ in $(seq 600); do
        ls "$OUT"/third/muster-quickstart.*/preempted/metrics.jsonl >/dev/null 2>&1 && break
        sleep 0.1
    done
    # It leads a session and a process group: setsid became it, as no shell's job control gave it a group before.
    # One that has ended by now is for the tests to judge, by its log.
    kill -INT -- "-$third" || true
    sleep 0.3
    kill -INT -- "-$third" || true
    code=0
    wait "$third" || code=$?
    echo "$code" >"$OUT/third.code"
}

teardown_file() {
    rm -rf "${OUT:?}"
}

setup() {
    command -v slurmctld >/dev/null || skip "slurmctld is not installed"
    command -v bible >/dev/null || skip "bible-kjv is not installed"
    run_dir=$(echo "$OUT"/first/muster-quickstart.*)
}

# bats test_tags=quick
@test "quickstart ends with exit code 0" {
    cat "$OUT/first.log"
    [ "$(cat "$OUT/first.code")" -eq 0 ]
}

# bats test_tags=quick
@test "the job is preempted on 4 nodes, resumes at the same step on 2, and finishes" {
    log=$(echo "$run_dir"/preempted/train-*.out)
    stopped=$(sed -n 's/^stopped at step \([0-9]*\)$/\1/p' "$log")
    resumed=$(sed -n 's/^resumed from .* at step \([0-9]*\) .*/\1/p' "$log")
    [ -n "$stopped" ] && [ "$stopped" = "$resumed" ]
    grep -q '^mesh: dp 4 ' "$log"
    grep -q '^mesh: dp 2 ' "$log"
    [ "$(grep -c '^done at step 300$' "$log")" -eq 1 ]
    grep -q '^job [0-9]* finished once; Restarts=1$' "$OUT/first.log"
    grep -q '^job [0-9]* finished once; Restarts=0$' "$OUT/first.log"
}

# bats test_tags=quick
@test "no step is repeated or skipped, and the mesh changes at the preemption" {
    awk -F'[:,]' -v k="$(sed -n 's/^stopped at step //p' "$run_dir"/preempted/train-*.out)" '
        { match($0, /"world":[0-9]+/); world = substr($0, RSTART + 8, RLENGTH - 8) }
        $2 != NR || world != (NR <= k ? 4 : 2) { bad = 1 }
        END { exit bad || NR != 300 }' "$run_dir/preempted/metrics.jsonl"
}

# bats test_tags=quick
@test "the loss falls by more than 40% and matches the uninterrupted run to 1e-5" {
    muster-report compare --tolerance 1e-5 "$run_dir/preempted/metrics.jsonl" "$run_dir/alone/metrics.jsonl"
    first=$(sed -n '1s/.*"loss":\([0-9.]*\).*/\1/p' "$run_dir/preempted/metrics.jsonl")
    last=$(sed -n '$s/.*"loss":\([0-9.]*\).*/\1/p' "$run_dir/preempted/metrics.jsonl")
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < 0.6 * a) }'
}

# bats test_tags=quick
@test "the report has the plot with the preemption, a verified checkpoint and generated text" {
    grep -q 'shrunk: 4 → 2 ranks' "$run_dir/loss.svg"
    grep -q 'checkpoints/step-00000300: whole' "$OUT/first.log"
    grep -q 'And the LORD said' "$OUT/first.log"
    grep -q 'the same (tolerance' "$run_dir/report.txt"
}

# bats test_tags=quick
@test "the run uses a tokenizer trained on the text, and the generated text has English words" {
    for run in preempted alone; do
        grep -qx 'tokenizer: tokenizer, SentencePiece, 2000 tokens' "$run_dir/$run"/train-*.out
        ! grep -q '^warning' "$run_dir/$run"/train-*.out
    done
    sed -n '/^What it writes now:/,/^the loss curve/p' "$OUT/first.log" | sed '1d; $d' >"$BATS_TEST_TMPDIR/written"
    cat "$BATS_TEST_TMPDIR/written"
    bible -l9999 gen1:1-rev22:21 </dev/null | tr -cs A-Za-z '\n' | sort -u >"$BATS_TEST_TMPDIR/words"
    tr -cs A-Za-z '\n' <"$BATS_TEST_TMPDIR/written" | grep . >"$BATS_TEST_TMPDIR/spoken"
    known=$(grep -cxFf "$BATS_TEST_TMPDIR/words" "$BATS_TEST_TMPDIR/spoken")
    all=$(wc -l <"$BATS_TEST_TMPDIR/spoken")
    [ "$all" -ge 40 ] && [ "$known" -ge $((all * 85 / 100)) ]
}

@test "a second quickstart runs at the same time, as an ordinary user, on 3 nodes" {
    cat "$OUT/second.log"
    [ "$(cat "$OUT/second.code")" -eq 0 ]
    grep -q '^mesh: dp 3 ' "$OUT"/second/muster-quickstart.*/preempted/train-*.out
    # a small text, a small vocabulary
    grep -qx 'tokenizer: tokenizer, SentencePiece, 445 tokens' "$OUT"/second/muster-quickstart.*/preempted/train-*.out
}

@test "Ctrl-C, pressed twice, ends with 130, names the output directory and leaves no stage" {
    cat "$OUT/third.log"
    [ "$(cat "$OUT/third.code")" -eq 130 ]
    grep -q "^quickstart: interrupted; Slurm is being stopped" "$OUT/third.log"
    grep -q "^quickstart: what there is by now is in $OUT/third/muster-quickstart" "$OUT/third.log"
    for config in "$OUT"/*/muster-quickstart.*/*/quickstart.cfg; do
        stage=$(sed -n 's/^  stage = "\(.*\)";/\1/p' "$config")
        [ -n "$stage" ] && [ ! -e "$stage" ]
    done
}

@test "quickstart leaves no process, and only the report" {
    ! grep -lzsF "$OUT" /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -v "/$$/" | xargs -r -n1 dirname |
        while read -r process; do tr '\0' ' ' <"$process/cmdline"; echo; done | grep -E 'slurm|muster-(train|report)'
    [ ! -e "$run_dir/slurm" ]
    [ -s "$run_dir/report.txt" ]
}
