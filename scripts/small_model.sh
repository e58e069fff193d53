#!/usr/bin/env bash
# A real pretrained model of 135 million parameters learns on two cores, in hours: SFT on demonstrations, then GRPO and SPARK from there.
# usage: scripts/small_model.sh [DIR]       DIR: ./small-model; a second call goes on where the first one stopped
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-small-model}
mkdir -p "$folder/runs"
folder=$(cd "$folder" && pwd)

"$root/scripts/install.sh" "$folder/.venv" alfworld,plots
export PATH=$folder/.venv/bin:$PATH
PYTHON=$folder/.venv/bin/python "$root/scripts/get_small_model.sh" "$folder/model"
cd "$folder"

# stage OUT COMMAND...: begun, or resumed where OUT is there.
stage() {
  local out=$1 resume=()
  shift
  [[ ! -e $out ]] || resume=(--resume)
  printf '\n== %s\n' "$*" >&2
  "$@" --seed 0 "${resume[@]}"
}

# evaluation RUN: 70 held-out games, greedy and at T = 1.
evaluation() {
  local asked=(--preset small-model --tasks 70 --samples 1 --dtype bfloat16)
  stage "$1/evaluation/greedy.json" agentcli eval "$1" "${asked[@]}" --temperature 0 --label greedy
  stage "$1/evaluation/sampled.json" agentcli eval "$1" "${asked[@]}" --temperature 1 --label sampled
}

stage runs/demos agentcli demos --preset small-model -o runs/demos
stage runs/sft agentcli sft runs/demos --preset small-model --model model -o runs/sft
evaluation runs/sft
for method in chain spark; do
  stage "runs/$method" agentcli run small-model --model runs/sft/checkpoint --method "$method" --dtype bfloat16 -o "runs/$method"
  evaluation "runs/$method"
  agentcli compare runs/sft "runs/$method"
done
