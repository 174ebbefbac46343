#!/usr/bin/env bash
# matrix - the same training run on every mesh, and the same bits in every way at a mesh: see matrix_ranks.c.
. "$(dirname "$0")/../helpers.bash"
. "$(dirname "$0")/tap.bash"
tap_begin
tap_ranks 1 "$BUILD/tests/engine/matrix_ranks" "$DIR" reference
sizes='1 2 3 4 5 6 7 8' least=60
[ -z "${MUSTER_CHECK_QUICK-}" ] || sizes='1 2 4' least=20
for n in $sizes; do tap_ranks $n "$BUILD/tests/engine/matrix_ranks" "$DIR"; done
tap_end $least
