# bats file_tags=more
# The benchmarks that no other test runs.
load ../helpers

@test "bench/checkpoint measures each part, and ends with its table" {
    [ "$BUILD" = "$TOP/build" ] || skip "it measures the programs of build/"
    command -v fio >/dev/null || skip "there is no fio"
    "$TOP/bench/checkpoint" --bytes 1 --rounds 1 --no-torch --dir "$BATS_TEST_TMPDIR" \
        --stage "$BATS_TEST_TMPDIR" >"$BATS_TEST_TMPDIR/table"
    cd "$BATS_TEST_TMPDIR" || return
    cat table
    for part in stage 'drain and commit' 'save and commit' load verify reshard; do
        grep -q "^$part.* s  *[0-9.]* GB/s" table
    done
}
