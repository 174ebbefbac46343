# Checkpoints on GlusterFS: four bricks, and two nodes of two ranks that each have a FUSE mount of their own.
load ../helpers

VOLUME=$TOP/tests/parallel-fs/volume
OUTAGE=60                          # seconds that a brick is dead
OUTAGES=${MUSTER_CHECK_FULL:+20}   # how many times
OUTAGES=${OUTAGES:-1}
SEED=${MUSTER_TEST_SEED:-19}

setup_file() {
    WHY_NOT=$("$VOLUME" why-not)
    export WHY_NOT
    [ -z "$WHY_NOT" ] || return 0
    "$VOLUME" start "$BATS_FILE_TMPDIR/volume" || "$VOLUME" stop "$BATS_FILE_TMPDIR/volume"
}

teardown_file() {
    [ -n "$WHY_NOT" ] || "$VOLUME" stop "$BATS_FILE_TMPDIR/volume"
}

setup() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    need mpiexec.mpich
    DIR=$BATS_TEST_TMPDIR
    FS=$BATS_FILE_TMPDIR/volume/fs/$BATS_TEST_NUMBER # in the nodes' mounts; on this machine there is nothing
    eventually 60 on a mkdir -p "$FS"
    mkdir -m 700 "$DIR/stage"
    tiny_job "$DIR"
    sed -i 's/micro_batch = 4;/micro_batch = 2;/; s/steps = 50;/steps = 40;/' "$DIR/job.cfg"
    echo "checkpoint = { dir = \"$FS/ckpt\"; every = 10; keep = 0; stage = \"$DIR/stage\"; };" >>"$DIR/job.cfg"
    cd "$DIR" || return
}

teardown() {
    [ -z "$WHY_NOT" ] || return 0
    end_ours KILL
    [ -n "$BATS_TEST_COMPLETED" ] || "$VOLUME" revive "$BATS_FILE_TMPDIR/volume" # for the next test
}

on() {
    "$VOLUME" on "$BATS_FILE_TMPDIR/volume" "$@"
}

# usable DIR: both nodes can make and rename files there. After a brick comes back, that takes them some seconds: until
# then, GlusterFS answers EINVAL and ENOENT too.
usable() {
    local node
    for node in a b; do
        on $node sh -c 'for n in $(seq 16); do
            echo >"$1/usable.$n" && mv "$1/usable.$n" "$1/used.$n" && rm "$1/used.$n" || exit
        done' sh "$1" || return
    done
}

# end_ours SIGNAL: to the ranks and muster-ckptds of this test. They know $DIR by their arguments.
end_ours() {
    pkill "-$1" -f "^[^ ]*muster-(train|ckptd) .*$DIR/" || true
}

# train RANKS ARGUMENT...: on both nodes, the first has the odd one; one rank is on b.
train() {
    local n=$1 on=("$VOLUME" on "$BATS_FILE_TMPDIR/volume")
    shift
    case $n in
    1) timeout -k 5 300 mpiexec.mpich -n 1 "${on[@]}" b muster-train "$DIR/job.cfg" "$@" ;;
    *) timeout -k 5 300 mpiexec.mpich -n $(((n + 1) / 2)) "${on[@]}" a muster-train "$DIR/job.cfg" "$@" : \
        -n $((n / 2)) "${on[@]}" b muster-train "$DIR/job.cfg" "$@" ;;
    esac
}

# no_line GREP-ARGUMENT...: none matches; those that do are printed. bats does not see a plain `! grep` fail.
no_line() {
    ! grep "$@"
}

# no_file NODE FILE: it cannot be read there. GlusterFS serves a small file from its cache for a second.
no_file() {
    ! on "$1" cat "$2" >/dev/null 2>&1
}

# larger: 20 MB of state, which a node drains at some MiB a second
larger() {
    sed -i 's/hidden = 32/hidden = 256/; s/global_batch = 24/global_batch = 4/; s/micro_batch = 2/micro_batch = 1/' job.cfg
}

steps() {
    on "$1" muster-ckpt list "$2" | awk '$1 ~ /^[0-9]+$/ { print $1 }' | sort -n | paste -sd ' '
}

@test "saves of four ranks on two mounts are identical staged and direct, and 1 and 3 ranks resume from them" {
    # GlusterFS sometimes denies a file that was just renamed: the save is tried again, and a newer one may overtake it
    train 4 >log
    [ "$(grep -Ec '^checkpoint of step [0-9]+ (saved in|was superseded) ' log)" -eq 4 ]
    [ "$(ls stage | wc -l)" -eq 0 ]
    saved=$(steps a "$FS/ckpt")
    [[ $saved == [123]0\ *40 ]]
    train 4 --set checkpoint.dir="$FS/direct" --set checkpoint.stage= --set report.metrics="$DIR/direct.jsonl" >log
    for step in $saved; do
        on b muster-ckpt diff "$FS/ckpt/step-000000$step" "$FS/direct/step-000000$step"
    done
    on b muster-ckpt verify --all "$FS/ckpt"
    first=${saved%% *}
    sed -n "$((first + 1)),\$p" metrics.jsonl >after.jsonl
    for n in 1 3; do
        on a mkdir "$FS/on$n"
        on a cp -r "$FS/ckpt/step-000000$first" "$FS/on$n"
        train $n --set checkpoint.dir="$FS/on$n" --set report.metrics="$DIR/on$n.jsonl" >log
        grep -q "^resumed from $FS/on$n.* at step $first " log
        muster-report compare --tolerance 1e-4 after.jsonl "on$n.jsonl"
        on a muster-ckpt verify --all "$FS/on$n"
    done
}

@test "old checkpoints are removed from either mount and leave nothing on a brick" {
    train 4 --set checkpoint.every=5 --set checkpoint.keep=2 >log
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' log)" -ge 3 ]
    steps a "$FS/ckpt" | grep -Eq '^[0-9]+ 40$'
    [ "$(steps b "$FS/ckpt")" = "$(steps a "$FS/ckpt")" ]
    on b muster-ckpt prune --keep 1 "$FS/ckpt"
    [ "$(steps a "$FS/ckpt")" = 40 ]
    on a muster-ckpt verify --all "$FS/ckpt"
    on a sh -c 'cd "$1" && find .' sh "$FS/ckpt" >left
    cat left
    [ "$(grep -c '^[.]/[.]trash/.\|^[.]/step-' left)" -eq "$(grep -c '^[.]/step-00000040\(/\|$\)' left)" ]
    [ "$(ls -d "$BATS_FILE_TMPDIR"/volume/brick?/"$BATS_TEST_NUMBER"/ckpt/step-*/ | grep -vc step-00000040/)" -eq 0 ]
}

@test "after all processes are killed during a drain, a drain on each node commits it and three ranks resume" {
    larger
    train 4 --set checkpoint.drain_mib=2 --set checkpoint.every=30 >log 2>&1 3>&- &
    staged() { [ "$(ls stage/*/step-00000030.*/shard-*.json 2>/dev/null | wc -l)" -eq 4 ]; }
    eventually 60 staged
    begun() { on a sh -c 'ls -d "$1"/ckpt/step-*.partial' sh "$FS" 2>/dev/null | grep -q .; }
    eventually 30 begun
    end_ours KILL
    wait $! || true
    [ -z "$(steps a "$FS/ckpt")" ]
    # as the nodes' epilogs do: one that ends before the other has copied its shards leaves the commit to it
    on a muster-ckptd --once --partner --seconds 60 --quiet stage/muster-*.a.* 2>a.log &
    a=0 b=0
    on b muster-ckptd --once --partner --seconds 60 --quiet stage/muster-*.b.* 2>b.log || b=$?
    wait $! || a=$?
    cat a.log b.log
    [[ "$a $b" =~ ^(0 0|0 76|76 0)$ ]]
    [ "$(steps b "$FS/ckpt")" = 30 ]
    [ "$(ls stage | wc -l)" -eq 0 ]
    on a muster-ckpt verify "$FS/ckpt"
    sed -i 's/global_batch = 4/global_batch = 6/' job.cfg
    train 3 >log
    grep -q '^resumed from .* at step 30 ' log
    [ "$(steps a "$FS/ckpt")" = "30 40" ]
}

# brick_of FILE: the number of the brick with that file of the volume; the link that a rename leaves is no file
brick_of() {
    local n
    for n in 1 2 3 4; do
        [ ! -s "$BATS_FILE_TMPDIR/volume/brick$n/$1" ] || echo "$n"
    done
}

@test "a run that starts while a brick is dead loads no older checkpoint and renames none" {
    train 4 >log
    before=$(steps a "$FS/ckpt")
    newest=$BATS_TEST_NUMBER/ckpt/step-00000040
    first=$(brick_of "$newest/manifest.json")
    for shard in 0 1 2 3; do # on another brick
        shard=shard-0000$shard-of-00004.safetensors
        [ "$(brick_of "$newest/$shard")" = "$first" ] || break
    done
    for file in manifest.json $shard; do
        "$VOLUME" kill "$BATS_FILE_TMPDIR/volume" "$(brick_of "$newest/$file")"
        for node in a b; do eventually 30 no_file $node "$FS/ckpt/step-00000040/$file"; done
        status=0 loading=0
        train 3 --set batch.steps=41 >log 2>&1 || status=$?
        train 3 --set batch.steps=41 --set checkpoint.load="$FS/ckpt" --set checkpoint.dir="$DIR/other" \
            >loading.log 2>&1 || loading=$?
        cat log loading.log
        "$VOLUME" revive "$BATS_FILE_TMPDIR/volume"
        [ "$status" -eq 74 ]
        [ "$loading" -eq 74 ]
        no_line -E '^resumed from|^starting from' log loading.log
        # other shards may be on that brick too; of a file there, GlusterFS says ENOTCONN or ENOENT
        grep -q "^muster-train: .*$newest/${file/0000?-/0000.-}" loading.log
        for node in a b; do eventually 30 on $node cat "$FS/ckpt/step-00000040/$file" >/dev/null; done
        eventually 60 usable "$FS/ckpt"
        [ "$(steps a "$FS/ckpt")" = "$before" ]
        on b sh -c 'ls -A "$1"' sh "$FS/ckpt" >left
        no_line broken left
    done
    train 3 --set batch.steps=41 >log
    grep -q '^resumed from .* at step 40 ' log
}

# start_run NAME ARGUMENT...: a run in NAME of four ranks, which stops when NAME/stop is made; its pid is in run_pid
start_run() {
    local name=$1
    shift
    mkdir -p "$name"
    train 4 --set checkpoint.dir="$FS/$name" --set report.metrics="$DIR/$name/metrics.jsonl" --set batch.steps=10000000 \
        --set report.kill_file="$DIR/$name/stop" --set checkpoint.every=100 --set checkpoint.keep=3 "$@" \
        >"$name/log" 2>&1 3>&- &
    run_pid=$!
}

saved() {
    [ "$(grep -c '^checkpoint of step [0-9]* saved in ' "$1/log")" -ge "${2:-1}" ]
}

# ends_well NAME PID: its last state is committed, and all that is listed is whole and loads.
ends_well() {
    local code=0 last
    wait "$2" || code=$?
    echo "run $1:"
    grep -v iteration "$1/log" | tail -n 40
    [ "$code" -eq 75 ]
    last=$(sed -n 's/^stopped at step //p' "$1/log")
    [ -n "$last" ]
    steps a "$FS/$1" | grep -Eq "(^| )$last$"
    # for about a second GlusterFS denies a node the files in a directory that another one has renamed
    eventually 10 on b muster-ckpt verify --all "$FS/$1"
    rm "$1/stop"
    train 3 --set checkpoint.dir="$FS/$1" --set batch.steps=$((last + 1)) --set report.metrics="$DIR/again.jsonl" >again
    grep -q "^resumed from .* at step $last " again
}

@test "while a brick is dead for a minute, one run trains and another ends, and both commit their last save" {
    RANDOM=$SEED
    for ((outage = 1; outage <= OUTAGES; outage++)); do
        brick=$((RANDOM % 4 + 1)) moment=$((RANDOM % 4000)) ending=$((RANDOM % 20))
        echo "# outage $outage: brick $brick, after $moment ms; a run ends $ending s later" >&3
        start_run "long$outage"
        long_pid=$run_pid
        start_run "short$outage"
        short_pid=$run_pid
        eventually 60 saved "long$outage"
        eventually 60 saved "short$outage"
        sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
        "$VOLUME" kill "$BATS_FILE_TMPDIR/volume" $brick
        sleep $ending
        touch "short$outage/stop"
        sleep $((OUTAGE - ending))
        kill -0 $long_pid
        "$VOLUME" revive "$BATS_FILE_TMPDIR/volume"
        eventually 60 usable "$FS"
        ends_well "short$outage" $short_pid
        before=$(grep -c '^checkpoint of step [0-9]* saved in ' "long$outage/log")
        eventually 60 saved "long$outage" $((before + 1))
        touch "long$outage/stop"
        ends_well "long$outage" $long_pid
    done
    [ "$(ls stage | wc -l)" -eq 0 ]
}
