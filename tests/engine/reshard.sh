#!/usr/bin/env bash
# reshard - 100 random pairs of meshes: saved under one, loaded under the other; see reshard_ranks.c.
. "$(dirname "$0")/../helpers.bash"
. "$(dirname "$0")/tap.bash"
tap_begin
for n in 1 2 3 4 5 6 7 8; do tap_ranks $n "$BUILD/tests/engine/reshard_ranks" "$DIR" save; done
tap_ranks 1 "$BUILD/tests/engine/reshard_ranks" "$DIR" reference
for n in 1 2 3 4 5 6 7 8; do tap_ranks $n "$BUILD/tests/engine/reshard_ranks" "$DIR" load; done
tap_end 100
