#!/usr/bin/env bash
# house.sh - the rules of CONTRIBUTING.md about rooms, folders and names: see house.py.
python=$(command -v python3) || { echo "1..0 # SKIP no python3"; exit 0; }
exec "$python" "$top_srcdir/tests/unit/house.py"
