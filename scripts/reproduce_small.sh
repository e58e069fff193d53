#!/usr/bin/env bash
# Do the methods help a tiny policy? Seven ways to train one policy, each for the same number of environment steps, evaluated
# on whole L0 and L2 panels. Ends with OUT/results.md (docs/results.md says what it showed).
# usage: scripts/reproduce_small.sh OUT [SEED...]      resumable: type it again; ITERATIONS, STEPS, JOBS and METHODS change its size
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export out=${1:?usage: scripts/reproduce_small.sh OUT [SEED...]}
shift
seeds=("$@")
(($#)) || seeds=(0 1)
export iterations=${ITERATIONS:-28} steps=${STEPS:-700}
jobs=${JOBS:-2}
read -ra methods <<<"${METHODS:-grpo gigpo rewardflow spark-grpo spark-rewardflow carl dpepo}"

# start SEED: a policy that was shown both forms, one action a response and several in copies.
start() {
  local seed=$1 base=$out/$1
  agentcli demos --preset quickstart --seed "$seed" -o "$base/demos" --resume -q
  agentcli demos --preset quickstart --seed "$seed" --set rollout.method=dpepo -o "$base/demos-dpepo" --resume -q
  agentcli sft "$base/demos" "$base/demos-dpepo" --preset quickstart --set sft.updates=4000 --seed "$seed" -o "$base/sft" --resume -q
  panels "$seed" sft ''
  panels "$seed" sft dpepo- --set rollout.method=dpepo --set policy.max_tokens=72
}

# panels SEED RUN PREFIX OPTIONS...: three samples a game at temperature 1, and one greedy.
panels() {
  local seed=$1 run=$out/$1/$2 prefix=$3 split
  shift 3
  for split in L0 L2; do
    agentcli eval "$run" --split $split --temperature 1 --samples 3 --seed "$seed" --label "$prefix$split" "$@" --resume -q
  done
  agentcli eval "$run" --split L0 --temperature 0 --samples 1 --seed "$seed" --label "${prefix}L0-greedy" "$@" --resume -q
}

# train SEED NAME: the loop of a method from the shared start, then its panels.
train() {
  local seed=$1 name=$2 how
  case $name in
    grpo | gigpo | rewardflow) how=(credit.method="$name") ;;
    spark-*) how=(rollout.method=spark credit.method="${name#spark-}") ;;
    carl) how=(rollout.method=carl credit.method=carl) ;;
    carl-all) how=(rollout.method=carl credit.method=carl credit.update=all) ;;
    carl-often) how=(rollout.method=carl credit.method=carl train.rows_per_update=8) ;;
    dpepo) how=(rollout.method=dpepo credit.method=dpepo policy.max_tokens=72) ;;
    dpepo-penalty) how=(rollout.method=dpepo credit.method=dpepo policy.max_tokens=72 credit.invalid_penalty=0.1) ;;
    dpepo-grpo) how=(rollout.method=dpepo credit.method=grpo policy.max_tokens=72) ;;
    *) printf 'error: METHODS: no method %s in this script\n' "$name" >&2; return 2 ;;
  esac
  agentcli run quickstart --model "$out/$seed/sft/checkpoint" --iterations "$iterations" --seed "$seed" \
    --set rollout.tasks_per_step=64 --set rollout.budget="steps=$steps" "${how[@]/#/--set=}" -o "$out/$seed/$name" --resume -q
  panels "$seed" "$name" ''
}

# each FUNCTION WORDS...: for every line of stdin, JOBS at a time; fails when one of them does.
each() { xargs -P "$jobs" -L 1 bash -c 'set -euo pipefail; "$@"' each "$1"; }

export -f start panels train
mkdir -p "$out"
printf '%s\n' "${seeds[@]}" | each start
for seed in "${seeds[@]}"; do printf "$seed %s\n" "${methods[@]}"; done | each train
python "$root/scripts/reproduce_report.py" "$out" "${seeds[@]}" --methods "${methods[@]}" | tee "$out/results.md"
