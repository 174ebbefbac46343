# tap.bash - for tests whose ranks print TAP themselves, a line for each of many trials. Sourced after helpers.bash.

tap_lines=0 tap_code=0

# trial_data DIR: what the trials of trial.h train on.
trial_data() {
    english "$1/text"
    muster-data "$1/text" --out "$1/train" --valid-out "$1/valid" --valid-percent 10 >/dev/null
    muster-data "$1/text" --sentences --out "$1/sentences" --valid-out "$1/sentences-valid" --valid-percent 10 >/dev/null
}

# tap_begin: sets DIR, with data in it; or skips the test.
tap_begin() {
    command -v mpiexec.mpich >/dev/null || { echo "1..0 # SKIP mpiexec.mpich is not installed"; exit 0; }
    DIR=$(mktemp -d)
    trap 'rm -rf "$DIR"' EXIT
    trial_data "$DIR"
}

# tap_ranks N COMMAND...: passes its lines on. A program that ends badly though all its lines are good is a line too.
tap_ranks() {
    local n=$1 code=0 line bad=0
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
        "ok "*) tap_lines=$((tap_lines + 1)) ;;
        "not ok "*) tap_lines=$((tap_lines + 1)) bad=1 tap_code=1 ;;
        "exit "*) code=${line#exit } ;;
        esac
    done < <(RANKS_SECONDS=${MUSTER_CHECK_FULL:+36}900 ranks "$@" 2>&1; echo "exit $?")
    if [ "$code" -ne 0 ] && [ $bad = 0 ]; then
        echo "not ok - $n ranks of ${2##*/} ended with $code"
        tap_lines=$((tap_lines + 1)) tap_code=1
    fi
}

# tap_end LEAST: the plan; fewer lines than LEAST are a test that has not looked.
tap_end() {
    [ "$tap_lines" -ge "$1" ] || { echo "not ok - only $tap_lines of at least $1 trials"; tap_lines=$((tap_lines + 1)) tap_code=1; }
    echo "1..$tap_lines"
    exit $tap_code
}
