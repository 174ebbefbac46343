# helpers.bash - what the bats files share. Sourced by `load ../helpers`.

# Absolute paths of the source and build trees, whichever directory bats runs in.
TOP=$(cd "${top_srcdir:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
BUILD=$(cd "${top_builddir:-$TOP/build}" && pwd)
PATH=$BUILD:$PATH
export top_srcdir=$TOP top_builddir=$BUILD # a file is loaded again for each test, in the directory of setup_file
export OMP_NUM_THREADS=1
export MUSTER_MACHINES=$TOP/etc/machines
# Where hwloc's plugins are installed, each MPI rank would look for X displays, and wait for a name server that may be slow.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS--gl}

# ranks N COMMAND...: N ranks of a program on this machine, with a bound on its time.
ranks() {
    local n=$1
    shift
    timeout -k 5 "${RANKS_SECONDS:-120}" mpiexec.mpich -n "$n" "$@"
}

# outlasting: makes ./rank, with which mpiexec starts a program. Each rank stays until all have ended, since mpiexec would
# kill or signal those that remain, and lose their codes. pids/RANK is the program's process, codes/RANK its exit code.
outlasting() {
    rm -rf pids codes
    mkdir pids codes
    cat >rank <<'SH'
#!/bin/sh
"$@" &
echo $! >pids/$PMI_RANK
wait $!
echo $? >codes/$PMI_RANK
until [ "$(ls codes | wc -l)" -eq "$PMI_SIZE" ]; do sleep 0.05; done
sleep 0.3
SH
    chmod +x rank
}

need() {
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# python_has PYTHON MODULE...: without importing them, which takes seconds
python_has() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "${@:2}" 2>/dev/null
}

# english FILE: real text, the same everywhere.
english() {
    if command -v bible >/dev/null; then
        bible -l9999 gen1:1-exo40:38 </dev/null | sed 's/^ *//' >"$1"
    else
        cat "$TOP"/LICENSE "$TOP"/README.md "$TOP"/CONTRIBUTING.md >"$1"
    fi
}

# tiny_job DIR: data and a job file for a model that trains in a moment, in DIR.
tiny_job() {
    mkdir -p "$1"
    english "$1/text"
    muster-data "$1/text" --out "$1/train" --valid-out "$1/valid" --valid-percent 5 >/dev/null
    cat >"$1/job.cfg" <<CFG
model = { layers = 2; hidden = 32; heads = 2; seq_length = 32; vocab = 256; };
parallel = { zero = 1; };
batch = { global_batch = 24; micro_batch = 4; steps = 50; seed = 1; };
optimizer = { lr = 3e-3; min_lr = 3e-4; warmup_steps = 5; weight_decay = 0.1; clip = 1.0; };
data = { train = "$1/train"; valid = "$1/valid"; };
report = { metrics = "$1/metrics.jsonl"; log_every = 10; peak_tflops = 0.1; };
CFG
}

# claim FIELD VALUE...: changes the claim on ckpt, to what another host or job would have written
claim() {
    python3 - "$@" <<'PY'
import glob, json, sys
path, = glob.glob("ckpt/owner-*.json")
with open(path) as file:
    claim = json.load(file)
for field, value in zip(sys.argv[1::2], sys.argv[2::2]):
    claim[field] = type(claim[field])(value)
with open(path, "w") as file:
    json.dump(claim, file)
PY
}

# claimed FIELD: the field in the claim on ckpt
claimed() { python3 -c 'import glob, json, sys; [path] = glob.glob("ckpt/owner-*.json"); print(json.load(open(path))[sys.argv[1]])' "$1"; }

# number: of the only claim on ckpt
number() { basename ckpt/owner-*.json .json | tr -cd 0-9; }

# steps_done N: metrics.jsonl has that many steps
steps_done() { [ "$(cat metrics.jsonl 2>/dev/null | wc -l)" -ge "$1" ]; }

# another_user_can EXPRESSION...: what test says of it to user 65534; false where the caller is not root.
another_user_can() { [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --clear-groups test "$@"; }

# eventually SECONDS COMMAND...: run it until it succeeds, but not for longer.
eventually() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "not within its time: $*"; return 1; }
        sleep 0.1
    done
}
