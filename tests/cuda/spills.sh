#!/usr/bin/env bash
# spills.sh - no kernel spills registers to memory, on any GPU that is built for. Read from what ptxas said when the
# kernels were compiled; a kernel whose report is missing was not looked at, and fails.
here=$top_builddir/kernels/cuda/gpu number=0

# Lines "TARGET FUNCTION: N bytes" of the report on standard input, one a spilling kernel; at the end "of COUNT".
spilling() {
    awk '
        /Compiling entry function/ { split($0, word, "\047"); kernel = word[2]; target = word[4]; count++ }
        /bytes spill stores/ {
            stores = loads = 0
            for (i = 2; i < NF; i++) if ($(i + 1) == "bytes") {
                if ($(i + 3) ~ /^stores/) stores = $i
                if ($(i + 3) ~ /^loads/) loads = $i
            }
            if (stores + loads > 0) print target, kernel ": " stores + loads " bytes"
        }
        END { print "of " count + 0 }'
}

tap() {
    number=$((number + 1))
    echo "$1 $number - $2"
}

planted="ptxas info    : Compiling entry function '_Z5probePj' for 'sm_80'
ptxas info    : Function properties for _Z5probePj
    64 bytes stack frame, 0 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z4finePj' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
if [ "$(spilling <<<"$planted" | tr '\n' ';')" = 'sm_80 _Z5probePj: 8 bytes;of 2;' ]; then
    tap ok "a planted register spill is detected"
else
    tap 'not ok' "a planted register spill is detected"
    spilling <<<"$planted" | sed 's/^/# /'
fi

for source in "$top_srcdir"/kernels/cuda/gpu/*.cu; do
    name=$(basename "$source" .cu) report=$here/$(basename "$source" .cu).ptxas
    if [ ! -f "$report" ]; then
        echo "# no $report: is $name.cu in kernels/cuda/module.am?"
        tap 'not ok' "$name.cu: ptxas reported its registers"
        continue
    fi
    seen=$(spilling <"$report")
    if [ "${seen%% *}" = of ] && [ "$seen" != 'of 0' ]; then
        tap ok "$name.cu: none $seen kernels spills registers"
    else
        printf '%s\n' "$seen" | sed 's/^/# /'
        tap 'not ok' "$name.cu: no kernel spills registers"
    fi
done
echo "1..$number"
