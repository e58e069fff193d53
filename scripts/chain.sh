#!/usr/bin/env bash
# The loop of `agentcli run --preset PRESET` as separate commands: the same trees, credit and checkpoints.
# usage: scripts/chain.sh PRESET MODEL ITERATIONS OUT        AGENTCLI_SEED=1 and the like set what presets do not
set -euo pipefail
preset=$1 start=$2 iterations=$3 out=$4 model=$2
for ((i = 0; i < iterations; i++)); do
  run=$out/iteration_$(printf %03d "$i")
  agentcli rollout --preset "$preset" --model "$model" --iteration "$i" -o "$run"
  agentcli assign-credit "$run"
  agentcli train "$run" --model "$model" --set train.reference="$start"
  model=$run/checkpoint
done
