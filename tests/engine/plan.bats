# muster-plan: the best meshes, the job that it writes, and predicted tables.
load ../helpers
bats_require_minimum_version 1.5.0

setup() {
    need python3
    cd "$BATS_TEST_TMPDIR"
    export MUSTER_MACHINES=$BATS_TEST_DIRNAME/../../etc/machines
    cat >job.cfg <<'END'
model = { preset = "gpt-7b"; seq_length = 2048; };
batch = { global_batch = 256; };
precision = { compute = "bf16"; };
device = "cuda";
data = { train = "x"; };
END
}

# field NAME: of the best choice of one line of JSON
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)["best"][0][sys.argv[1]])' "$1"; }

@test "the ten best meshes, where time goes, and why others lose, in 100 columns" { # bats test_tags=quick
    run -0 muster-plan --machine a100-40 --nodes 4 job.cfg
    [[ $output == *"4 nodes of a100-40, 32 ranks of 39.5 GiB"* ]]
    [ "$(grep -cE '^ +[0-9]+ [= ] [0-9]+ x [0-9]+ x [0-9]+' <<<"$output")" = 10 ]
    [[ $output == *"time of the first: products "* && $output == *"(before 2022: "*"MosaicML MFU "* ]]
    grep -A1 -E '^  dp alone, ZeRO-1: needs [0-9.]+ GiB, mostly [a-z]+:$' <<<"$output" |
        grep '^      dp 32 x tp 1 x pp 1, ZeRO-1'
    ! grep '.\{101\}' <<<"$output"
    [ -z "$(grep -E '^(      dp| +[0-9]+ [= ] )' <<<"$output" | sed 's/^ *[0-9]* [= ] //' | sort | uniq -d)" ]
}

@test "the head has the type and what another would give, the error, and what was never measured" {
    run -0 muster-plan --machine h100 job.cfg --set model.preset=gpt-125m --set precision.compute=fp32
    [[ ${lines[0]} == "125 million parameters, 12 layers of 768, a step of 256 x 2048 tokens in fp32; stack muster" ]]
    [[ $output == *"The error of predicted times was 4% in the median: meshes as close to the fastest (=) are equal"* ]]
    [[ $output == *"muster has not run on several GPUs"* ]]
    grep -E '^In bf16 the best mesh would reach [0-9]{7} tokens/s.$' <<<"$output"
    run -0 muster-plan --machine v100 job.cfg --set model.preset=gpt-125m --set precision.compute=fp16
    grep -E '^In fp32 the best mesh would reach [0-9]{5,6} tokens/s.$' <<<"$output"
    run -0 muster-plan --machine a64fx job.cfg --set model.preset=gpt-tiny --set device=cpu --set precision.compute=fp32
    [[ $output != *"the best mesh would reach"* && $output != *"several GPUs"* && $output != *"why others lose:" ]]
}

@test "the job files that come with muster are near the best mesh" {
    for nodes in 8 16; do
        run -0 muster-plan --machine a100-80 --nodes $nodes "$TOP/etc/gpt-13b.cfg"
        ! grep -E '^  as in the job file: (needs|[2-9]|1\.[1-9])' <<<"$output"
        muster-plan --machine h100 --nodes $nodes "$TOP/etc/gpt-13b.cfg" >/dev/null
    done
}

@test "the written job has the memory that was predicted" { # bats test_tags=quick
    muster-plan --machine a100-40 --nodes 2 --json --write best.cfg job.cfg >best.json
    muster-train --plan 16 best.cfg >plan
    grep "^16 ranks: dp $(field dp <best.json) x tp $(field tp <best.json) x pp $(field pp <best.json), ZeRO-$(field zero <best.json)" plan
    python3 -c 'import sys
predicted, plan = float(sys.argv[1]), open("plan").read()
mib = max(map(float, plan.split("in all, on device")[1].split("\n")[0].split()))
assert abs(predicted * 1024 - mib) < 1, (predicted * 1024, mib)' "$(field gib <best.json)"
}

# numbers NODES: of nodes in the table
numbers() {
    muster-plan --machine v100 --nodes "$1" job.cfg --set batch.global_batch=24 >out
    sed -n 's/^ *\([0-9]*\) = [0-9].*/\1/p' out | xargs
}

@test "a line for each number of nodes: doubled, or each step" {
    [ "$(numbers 1-3)" = "1 2 3" ]
    [ "$(grep -c 'dp x tp x pp' out)" = 1 ]
    [ "$(numbers 1-2:1)" = "1 2" ]
    [ "$(numbers 1-4)" = "1 2 4" ]
    [ "$(numbers 1-7:3)" = "1 4 7" ]
    [ "$(numbers 2-6:3)" = "2 5 6" ]
    run -64 muster-plan --machine v100 --nodes 1-8:0 job.cfg
}

@test "a table gets its three columns through a pipe" {
    printf 'model,gpus,dp,tp,zero,global_batch,note\nGPT-345M,8,8,1,1,64,"a, b"\n' |
        muster-plan predict --machine a100-40 --stack megatron-deepspeed - >out.csv
    python3 -c 'import csv
row, = csv.DictReader(open("out.csv"))
assert row["note"] == "a, b" and row["predicted_fits"] == "true"
assert 1 < float(row["predicted_gib"]) < 40 and 0.1 < float(row["predicted_seconds"]) < 2, row'
}

@test "where nothing fits, the exit code is 78, and table, lines and JSON have the reason" {
    run -78 --separate-stderr muster-plan --machine v100 --ranks 1 job.cfg
    [[ $output == *"nothing fits: the least is "*" GiB, mostly gradients: dp 1 x tp 1 x pp 1"* ]]
    [ "$stderr" = "muster-plan: nothing fits 1 node of v100" ]
    run -78 --separate-stderr muster-plan --machine v100 --ranks 1 --nodes 1-2 --json job.cfg --set model.preset=gpt-181b
    [ "$(grep -c '"best": \[\], "reason": "nothing fits: the least is [0-9.]* GiB, mostly ' <<<"$output")" = 2 ]
    python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <<<"$output"
    run -78 --separate-stderr muster-plan --machine v100 --nodes 1000000 job.cfg
    [[ $output == *"nothing fits: no mesh of 8000000 ranks for "* ]]
    run -0 muster-plan --machine v100 --ranks 1 --nodes 1-16 job.cfg # on one of the numbers something fits
    [[ $output == *"    1   nothing fits: the least is "* ]]
    run -64 muster-plan --machine v100 --nodes 1000001 job.cfg
    [[ $output == *"--nodes 1000001 must be N, N-M or N-M:STEP, from 1 to 1000000"* ]]
}

@test "a table of which a row fails ends with 65 and names the row" {
    printf 'model,gpus,global_batch\nGPT-345M,8,64\nGPT-345M,,64\n' >table.csv
    run -65 --separate-stderr muster-plan predict --machine a100-40 --stack megatron-deepspeed table.csv
    [ "${#lines[@]}" = 3 ]
    [[ $stderr == *"table.csv:3: one of gpus, ranks, nodes and dp is needed"* ]]
}

@test "what is missing or unknown is said in one line" {
    run -64 muster-plan job.cfg
    run -64 muster-plan --machine a100-40 --nodes 3-1 job.cfg
    run -78 muster-plan --machine a1000 job.cfg
    [[ $output == *'no file for "a1000"'* ]]
    run -78 muster-plan --machine a100-40 --stack none job.cfg
    run -78 muster-plan --machine v100 --nodes 1 --ranks 1 --write new.cfg job.cfg
    [[ $output == *"new.cfg is not written: nothing fits"* ]]
    [ ! -e new.cfg ]
}

@test "--json of muster-train --plan, muster-data show and verify, and muster-report summary: what the words say" {
    tiny_job "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR"
    muster-train job.cfg --set batch.steps=6 >log
    muster-train --plan 4 job.cfg --set parallel.pp=2 >plan
    { muster-train --plan 4 job.cfg --set parallel.pp=2 --json && muster-data show train --json &&
        muster-data verify train valid --json && muster-report summary metrics.jsonl --json; } >json
    python3 - <<'PY'
import json, re
plan, shown, train, valid, run = map(json.loads, open("json"))
words = open("plan").read()
assert words.startswith("4 ranks: dp {dp} x tp {tp} x pp {pp}, ZeRO-{zero}\n".format(**plan)), words
for key, name in (("workspace", "workspace"), ("in_all_on_device", "in all, on device")):
    mib = re.search(name + " +([0-9.]+) +([0-9.]+)", words).groups()
    assert [f"{stage[key] / 2**20:.1f}" for stage in plan["bytes"]] == list(mib), (key, mib)
assert train == shown | {"least_token": train["least_token"], "largest_token": train["largest_token"]}
assert valid["prefix"] == "valid" and 0 < valid["tokens"] < train["tokens"]
assert [run["first_step"], run["last_step"], run["steps"], run["meshes"][0]["world"]] == [1, 6, 6, 1]
assert abs(run["last_loss"] - json.loads(open("metrics.jsonl").readlines()[-1])["loss"]) < 1e-9
PY
}
