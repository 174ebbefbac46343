#!/usr/bin/env bats
# The bundle, unpacked elsewhere and run with nothing of this shell's environment. This machine has the libraries too,
# so what the programs load is looked at beside.
load ../helpers

setup_file() {
    [ "$(uname -m)" = x86_64 ] || skip "a bundle is for x86-64"
    export PLACE=$BATS_FILE_TMPDIR/else\ where
    mkdir -p "$PLACE/job"
    make -s -C "$BUILD" bundle >"$BATS_FILE_TMPDIR/make.out" 2>&1 || { cat "$BATS_FILE_TMPDIR/make.out"; false; }
    export FILE
    FILE=$(echo "$BUILD"/muster-*-bundle.tar.xz)
    tar -C "$PLACE" -xJf "$FILE"
    mv "$PLACE"/muster-*-bundle "$PLACE/muster"
}

# bare COMMAND...: in the bundle, as on a machine where nobody has logged in before.
bare() {
    (cd "$PLACE" && env -i PATH=/usr/bin:/bin HOME="$PLACE" OMP_NUM_THREADS=1 "$@")
}

@test "the bundle is under 50 MB" {
    size=$(stat -c %s "$FILE")
    [ "$size" -gt 1000000 ]
    [ "$size" -lt 50000000 ]
}

@test "programs load the bundle's libraries, and from the system only libc and compiler libraries" {
    local program library found=0
    for program in "$PLACE"/muster/libexec/*; do
        while read -r library; do
            case $library in
            *"=> $PLACE/muster/lib/"*) found=$((found + 1)) ;;
            lib[cm].so.6\ * | libresolv.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libutil.so.*) ;;
            libstdc++.so.6\ * | libgcc_s.so.1\ * | libgomp.so.1\ *) [ -e "$PLACE/muster/lib/compiler/${library%% *}" ] ;;
            *"=>"*) echo "${program##*/}: $library"; false ;;
            esac
        done < <(env LD_LIBRARY_PATH="$PLACE/muster/lib" ldd "$program" | sed 's/^[[:space:]]*//')
    done
    [ "$found" -gt 50 ]
}

@test "muster-train trains on the CPU from the bundle" {
    english "$PLACE/job/text"
    bare muster/muster-data job/text --out job/train --valid-out job/valid --valid-percent 5
    cat >"$PLACE/job/job.cfg" <<CFG
model = { layers = 2; hidden = 32; heads = 2; seq_length = 32; vocab = 256; };
batch = { global_batch = 8; micro_batch = 4; steps = 20; seed = 1; };
optimizer = { lr = 3e-3; min_lr = 3e-4; warmup_steps = 5; weight_decay = 0.1; clip = 1.0; };
data = { train = "$PLACE/job/train"; valid = "$PLACE/job/valid"; };
report = { metrics = "$PLACE/job/metrics.jsonl"; log_every = 10; peak_tflops = 0.1; };
CFG
    bare muster/muster-train job/job.cfg
    # The same losses as the build tree's own program.
    sed "s|job/metrics|job/own|" "$PLACE/job/job.cfg" >"$PLACE/job/own.cfg"
    OMP_NUM_THREADS=1 muster-train "$PLACE/job/own.cfg"
    losses() { grep -o '"loss": *[0-9.e+-]*' "$1"; }
    [ "$(losses "$PLACE/job/metrics.jsonl" | wc -l)" -ge 20 ]
    [ "$(losses "$PLACE/job/metrics.jsonl")" = "$(losses "$PLACE/job/own.jsonl")" ]
}

@test "several ranks are launched from the bundle" {
    [ -e "$PLACE/muster/mpiexec.mpich" ] || skip "no MPICH's hydra was here to pack"
    run bare timeout 120 muster/mpiexec.mpich -n 2 muster/muster-train job/job.cfg --set batch.steps=10
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"mesh: dp 2 "*"2 ranks"* ]]
}

@test "a kernel test runs from the bundle, and tests/gpu.sh reports that there is no GPU" {
    bare muster/tests/kernels/test_device
    [ ! -e /dev/nvidiactl ] || skip "there is a GPU here"
    run bare muster/tests/gpu.sh
    [ "$status" = 77 ]
    [[ $output == *'device "cuda": '* ]]
}
