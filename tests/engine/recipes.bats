#!/usr/bin/env bats
# The job files and commands of muster-recipes(7), so that the page cannot go stale.
load ../helpers

setup() {
    PAGE=$TOP/doc/muster-recipes.7.scd
    cd "$BATS_TEST_TMPDIR" || return
}

# Each block of the page that has "# NAME.cfg" or "# NAME.sbatch" in its first two lines, as that file
extract() {
    awk '/^```/ {inside = !inside; at = 0; name = ""; kept = ""; next}
        inside && ++at <= 2 && /^# [a-z]+\.(cfg|sbatch)$/ {name = $2; printf "%s", kept >name}
        inside && !name {kept = kept $0 "\n"}
        inside && name {print >name}' "$PAGE"
}

# The page's commands of muster's own programs, one a line
commands() {
    awk '/^```/ {inside = !inside; next} inside && sub(/^\$ /, "")' "$PAGE" | sed 's/; */\n/g' | grep '^muster-'
}

@test "every job file of muster-recipes(7) is valid, also for --plan 4" {
    extract
    [ "$(echo *.cfg)" = "array.cfg bert.cfg blend.cfg node.cfg tune.cfg" ]
    export SLURM_ARRAY_JOB_ID=1 SLURM_ARRAY_TASK_ID=2 SLURM_JOB_NAME=lr
    for file in *.cfg; do
        muster-train --check "$file"
        muster-train --plan 4 "$file" | grep 'in all, on device'
    done
    head -n 1 array.sbatch | grep -q '^#!/bin/bash$'
    bash -n array.sbatch
}

@test "every option in the recipes' commands exists in its program" {
    [ "$(commands | wc -l)" -ge 11 ]
    while read -r program rest; do
        for word in $rest; do
            [[ $word == --[a-z]* ]] || continue
            "$program" --help | grep -qe "${word%%=*}" || { echo "$program has no $word"; return 1; }
        done
    done < <(commands)
}

@test "the recipes' data commands work, and the data is large enough for the first job" {
    english corpus.txt
    cp corpus.txt a.txt && cp corpus.txt b.txt
    commands | grep '^muster-data' | grep -v published >lines
    [ "$(wc -l <lines)" -ge 4 ]
    bash -e lines
    cp "$TOP/etc/gpt-tiny.cfg" .
    run timeout 120 muster-train gpt-tiny.cfg --set batch.steps=21 --set report.eval_every=21
    echo "$output"
    [ "$status" -eq 0 ]
}
