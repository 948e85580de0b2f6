#!/usr/bin/env bash
# Stages 1–3 on a CPU (about 6 minutes on two cores): documents, split, tokenizer and token streams, prompts.
#   training/data/run.sh FOLDER TOKENS [GSM8K_TRAIN.jsonl]
set -euo pipefail
folder=$(realpath "$1"); mkdir -p "$2"; tokens=$(realpath "$2"); gsm8k=${3:+--gsm8k $(realpath "$3")}
cd "$(dirname "$0")/.."
python3 -m data.extract --debs "$folder/x" --wheels "$folder/p" $gsm8k --out "$folder/docs.jsonl"
python3 -m data.split --docs "$folder/docs.jsonl" --wheels "$folder/p" --out "$folder"
python3 -m data.tokenise --data "$folder" --out "$tokens"
python3 -m data.prompts --data "$folder" --wheels "$folder/p" --tokens "$tokens" --out ../experiments/prompts
