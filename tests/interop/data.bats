# Data sets, against a reader and writer of Megatron-LM's format in Python.
bats_require_minimum_version 1.5.0
load ../helpers

setup() {
    need python3
    cd "$BATS_TEST_TMPDIR"
    english text
    licenses=(/usr/share/common-licenses/{GPL-3,Apache-2.0,MPL-2.0})
    indexed() { python3 "$TOP/tests/interop/indexed.py" "$@"; }
}

@test "a reader of Megatron-LM's format reads muster-data's sentences" {
    run -0 muster-data text "${licenses[@]}" --out set --sentences
    said=${output#set: }
    run -0 indexed sentences set text "${licenses[@]}"
    [ "${said%%;*}" = "$output" ]
    [[ $output == *" 4 documents" ]]
    run ! indexed documents set text "${licenses[@]}"
    [ "$output" = "indexed.py: set does not hold the documents of these texts" ]
}

@test "a reader of Megatron-LM's format reads muster-data's documents" {
    muster-data text "${licenses[@]}" --out set
    indexed documents set text "${licenses[@]}"
    run ! indexed sentences set text "${licenses[@]}"
    [ "$output" = "indexed.py: set does not hold the sentences of these texts" ]
}

@test "muster-data verify reads Megatron-LM data sets with tokens of every type" {
    for code in 1 4 8; do
        run -0 indexed write "set$code" $code text "${licenses[@]}"
        counts=${output#* tokens, }
        run -0 muster-data verify "set$code"
        [[ $output == *"), $counts, longest sentence "* ]]
    done
}
