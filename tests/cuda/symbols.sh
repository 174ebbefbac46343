#!/usr/bin/env bash
# symbols.sh - a program that has both the GPU's kernels and the emulated ones: no symbol is defined by both, or the
# linker would take one of the two for both, and a test on a GPU would run the emulator.
defined() {
    nm -C --defined-only "$1" 2>/dev/null | awk 'NF > 2 && $2 ~ /^[A-Zuvw]$/ { $1 = $2 = ""; print }' | sort -u
}

echo 1..1
gpu=$(defined "$top_builddir/kernels/.libs/libkernels.a") emulated=$(defined "$top_builddir/tests/cuda/.libs/libemulated.a")
both=$(comm -12 <(echo "$gpu") <(echo "$emulated"))
if [ "$(wc -l <<<"$gpu")" -gt 100 ] && [ "$(wc -l <<<"$emulated")" -gt 10 ] && [ -z "$both" ]; then
    echo "ok 1 - the kernels and the emulated kernels have no symbol in common"
else
    echo "not ok 1 - the kernels and the emulated kernels have no symbol in common"
    sed 's/^/# /' <<<"$both" | head -n 20
fi
