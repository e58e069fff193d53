#!/usr/bin/env bash
# What every exploration method makes of one policy at the same number of leaves, and at the same number of generated tokens:
# two tables of `agentcli compare`, chain first.
# usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]      resumable; a checkpoint that was shown several copies too (reproduce_small.sh's)
set -euo pipefail
model=${1:?usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]} out=${2:?usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]} seed=${3:-0}

# roll NAME OPTIONS...: the first 64 tasks with 8 leaves each, and as many tasks as 50,000 tokens pay for.
roll() {
  local name=$1
  shift
  set -- --preset quickstart --model "$model" --leaves 8 --seed "$seed" "$@" --resume -q
  agentcli rollout "$@" --tasks 64 -o "$out/leaves/$name"
  agentcli rollout "$@" --budget tokens=50000 -o "$out/tokens/$name"
}

roll chain
roll spark --method spark
roll spark-fixed --method spark --branch fixed:.3
roll spark-entropy --method spark --branch entropy
roll carl --method carl
roll carl-random --method carl --criterion random
roll arpo --method arpo
roll treerl --method treerl
roll treerpo --method treerpo
roll dpepo --method dpepo --set policy.max_tokens=72
for equal in leaves tokens; do
  (cd "$out/$equal" && agentcli compare chain spark spark-fixed spark-entropy carl carl-random arpo treerl treerpo dpepo)
done
