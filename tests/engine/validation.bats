# A validation that a request to stop interrupts is repeated by the next start, once.
load ../helpers

# A validation takes much longer than the limit that interrupts it, and two steps much less.
setup() {
    DIR=$BATS_TEST_TMPDIR
    tiny_job "$DIR"
    cp "$DIR/train.bin" "$DIR/more.bin"
    cp "$DIR/train.idx" "$DIR/more.idx"
    sed -i "s/warmup_steps = 5/warmup_steps = 1/; s/log_every = 10/log_every = 1; eval_every = 2; eval_batches = 400/
        s#valid = .*\"#valid = \"0.5 $DIR/train 0.5 $DIR/more\"#" "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; };" >>"$DIR/job.cfg"
}

# train STEPS ARGS...: exit status in $status, standard output in $output
train() {
    run timeout 120 muster-train "$DIR/job.cfg" --set batch.steps="$@"
    echo "$output"
}

# interrupted STEPS AT ARGS...: a run of so many steps, of which one start or more stop in the validation of step AT
interrupted() {
    local at=$2
    until train "$1" --set report.minutes=0.0015 "${@:3}"; [ "$status" -ne 75 ] ||
        [[ $output == *"the validation at iteration $at is interrupted: the next start of the run repeats it"* ]]; do
        :
    done
    [ "$status" -eq 75 ]
    [[ $output == *"stopping after step $at: "* ]]
}

# results FILE: steps, losses and validations
results() {
    sed 's/"lr".*"time":[0-9.]*//; s/"tflops_before_2022".*"mosaicml_hfu_params":[0-9.e-]*//' "$1"
}

@test "a stop during a validation, also after the last step: 75, and the next start repeats it" {
    train 3 --set checkpoint.dir="$DIR/whole" --set report.metrics="$DIR/whole.jsonl"
    interrupted 3 2
    interrupted 3 3
    [[ $output == *" validation loss at iteration 2: "* ]]
    # a stop before it is repeated
    run timeout 60 python3 -c '
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execvp(sys.argv[1], sys.argv[1:])' muster-train "$DIR/job.cfg" --set batch.steps=3
    [ "$status" -eq 75 ]
    train 3
    [ "$status" -eq 0 ]
    [[ $output == *" validation loss at iteration 3: "*"done at step 3"* ]]
    diff <(results "$DIR/whole.jsonl") <(results "$DIR/metrics.jsonl")
    grep -q '"step":3,.*"valid_loss":.*"valid_set_losses":' "$DIR/metrics.jsonl"
    train 3
    [ "$status" -eq 0 ]
    [[ $output != *"validation loss"* ]]
}

@test "without metrics nothing shows that a validation was done: a start at its step repeats it" {
    interrupted 2 2 --set report.metrics=
    train 2 --set report.metrics=
    [ "$status" -eq 0 ]
    [[ $output == *" validation loss at iteration 2: "* ]]
    train 4 --set report.metrics= --set report.eval_every=0
    [ "$status" -eq 0 ]
    [[ $output != *"validation loss"* ]]
}
