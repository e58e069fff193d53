#!/usr/bin/env bash
# What every exploration method makes of one policy at the same number of leaves, and at the same number of generated tokens; and
# what votes at test time bring beside plain samples that cost as much. Ends with the tables of `agentcli compare`.
# usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]      resumable; a checkpoint that was shown several copies too (reproduce_small.sh's)
set -euo pipefail
model=${1:?usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]} out=${2:?usage: scripts/equal_cost.sh CHECKPOINT OUT [SEED]} seed=${3:-0}
with=(--preset quickstart --model "$model" --seed "$seed" --resume -q)

# roll NAME OPTIONS...: the first 64 tasks with 8 leaves each, and as many tasks as 50,000 tokens pay for.
roll() {
  local name=$1
  shift
  agentcli rollout "${with[@]}" --leaves 8 "$@" --tasks 64 -o "$out/leaves/$name"
  agentcli rollout "${with[@]}" --leaves 8 "$@" --budget tokens=50000 -o "$out/tokens/$name"
}

# treerl's growth is also treerpo's, and carl's with --criterion random.
roll chain
roll spark --method spark
roll spark-fixed --method spark --branch fixed:.3
roll spark-entropy --method spark --branch entropy
roll carl --method carl
roll arpo --method arpo
roll treerl --method treerl
roll dpepo --method dpepo --set policy.max_tokens=72
for equal in leaves tokens; do
  (cd "$out/$equal" && agentcli compare chain spark spark-fixed spark-entropy carl arpo treerl dpepo)
done

for samples in 1 2 4; do
  agentcli eval "${with[@]}" --samples "$samples" --label "plain-$samples" -o "$out/votes"
done
for vote in action outcome; do
  agentcli test-time-branch "${with[@]}" --vote "$vote" --branching 4 --label "$vote" -o "$out/votes"
done
cd "$out/votes/evaluation" && agentcli compare plain-1.json plain-2.json plain-4.json action.json outcome.json
