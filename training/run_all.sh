#!/usr/bin/env bash
# Every GPU stage in order, on one H200: target, text, drafters, quick check.
#   training/run_all.sh TOKENS OUT [SCALE]
# SCALE multiplies the wall-clock budget of each stage (0.1 for a smoke test).
set -euo pipefail
tokens=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); scale=${3:-1}
cd "$(dirname "$0")"
seconds() { awk "BEGIN { print $1 * $scale }"; }
python3 train_target.py --tokens "$tokens" --out "$out" --seconds "$(seconds "${TARGET_S:-480}")"
python3 generate.py --tokens "$tokens" --out "$out" --seconds "$(seconds "${GENERATE_S:-100}")"
python3 train_dflash.py --tokens "$tokens" --out "$out" --seconds "$(seconds "${DFLASH_S:-585}")"
python3 train_ar.py --tokens "$tokens" --out "$out" --seconds "$(seconds "${AR_S:-140}")"
python3 evaluate.py --tokens "$tokens" --out "$out" --prompts ../experiments/prompts
