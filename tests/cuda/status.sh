#!/usr/bin/env bash
# status.sh - every call of CUDA and its libraries has its status looked at: see status.py.
python=$(command -v python3) || { echo "1..0 # SKIP no python3"; exit 0; }
exec "$python" "$top_srcdir/tests/cuda/status.py"
