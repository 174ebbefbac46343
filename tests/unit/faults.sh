#!/usr/bin/env bash
# faults.sh - every row of doc/FAULTS.md names tests that exist: `FILE: NAME`, FILE in tests/.
top=${top_srcdir:-$(dirname "$0")/../..}
page=$top/doc/FAULTS.md
bad=0 rows=0

# fault ROW WORDS...: one line, with the row's fault
fault() {
    echo "# $(cut -d '|' -f 2 <<<"$1"): ${*:2}"
    bad=$((bad + 1))
}

# exists FILE NAME: NAME is the name of a test of FILE, a function or a string
exists() {
    local file=$top/tests/$1
    case $1 in
    *.bats) grep -qF -e "@test \"$2\"" "$file" ;;
    *) grep -qE -e "^ *(cmocka_unit_test[a-z_]*|TEST)\($2[,)]" "$file" || grep -qF -e "{\"$2\"," "$file" ;;
    esac
}

# The rows have four columns; the last has the tests.
while IFS= read -r row; do
    rows=$((rows + 1))
    [ "$(tr -cd '|' <<<"$row" | wc -c)" -eq 5 ] || fault "$row" "must have four columns"
    tests=$(cut -d '|' -f 5 <<<"$row" | grep -oE '`[^`]+`' | tr -d '`')
    [ -n "$tests" ] || fault "$row" "names no test"
    while IFS= read -r test; do
        file=${test%%: *} name=${test#*: }
        if [ ! -f "$top/tests/$file" ]; then
            fault "$row" "there is no tests/$file"
        elif ! exists "$file" "$name"; then
            fault "$row" "tests/$file has no test \"$name\""
        fi
    done <<<"$tests"
done < <(grep '^|' "$page" | grep -vE '^\| (fault|---) ')

echo 1..2
[ "$rows" -ge 40 ] && echo "ok 1 - $rows rows" || echo "not ok 1 - $rows rows, at least 40 are expected"
[ "$bad" -eq 0 ] && echo "ok 2 - every row names existing tests" || echo "not ok 2 - $bad errors in rows or their tests"
