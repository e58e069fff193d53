#!/usr/bin/env bash
# Does rarity help a tiny policy to use tools (001)? From one start per seed: the base model without and with tools, imitation of bare
# answers, and offline PPO on trajectories whose tools a judge chose greedily, at random, and rarity first. Held-out questions.
# usage: scripts/reproduce_rare_tool.sh OUT [SEED...]     resumable: type it again, what has ended is passed over
#   QUESTIONS, TEST: questions that are rolled and evaluated; SFT_UPDATES: of the start; EPOCHS: of PPO
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:?usage: scripts/reproduce_rare_tool.sh OUT [SEED...]}
shift
seeds=("$@")
(($#)) || seeds=(0 1 2 3 4)
questions=${QUESTIONS:-1000} test=${TEST:-280} preset=quickstart-tools
closed='environment.options={tools: []}'

# once FOLDER STAGE WORDS...: an agentcli command that ends as STAGE of FOLDER/manifest.json. One that ended, typed as it is now, is passed
# over without starting it.
once() {
  local folder=$1 stage=$2 words stamp
  stamp=$folder/.ended-${stage//\//-}
  shift 2
  words=$(printf '%q ' "$@")
  if [[ -e $stamp && $(<"$stamp") == "$words" ]] && grep -qs "^    \"$stage\": {" "$folder/manifest.json"; then return; fi
  agentcli "$@" -o "$folder" --resume -q
  printf '%s\n' "$words" >"$stamp"
}

# evaluate RUN SEED LABEL OPTIONS...: greedy answers to the held-out questions.
evaluate() {
  local run=$1 seed=$2 label=$3
  shift 3
  once "$run" "evaluation/$label" eval "$run" --preset "$preset" --model "$run/checkpoint" --split test --tasks "$test" \
    --temperature 0 --seed "$seed" --label "$label" "$@"
}

for seed in "${seeds[@]}"; do
  base=$out/$seed
  sizes=(--preset "$preset" --seed "$seed")
  updates=()
  [[ -z ${SFT_UPDATES:-} ]] || updates=(--set "sft.updates=$SFT_UPDATES")
  once "$base/demos" demos demos "${sizes[@]}"
  once "$base/start" sft sft "$base/demos" "${sizes[@]}" "${updates[@]}"
  evaluate "$base/start" "$seed" tools
  evaluate "$base/start" "$seed" closed --set "$closed"

  # SFT: question -> letter, no tools (001 section 3.1).
  once "$base/letters" demos demos "${sizes[@]}" --policy expert --set "$closed"
  once "$base/sft" sft sft "$base/letters" "${sizes[@]}" --model "$base/start/checkpoint" --set "$closed"
  evaluate "$base/sft" "$seed" closed --set "$closed"

  for rule in greedy random rarity; do
    run=$base/$rule
    once "$run" rollout rollout "${sizes[@]}" --method rare-tool --select "$rule" --set rollout.judge.kind=tool-judge \
      --leaves 1 --tasks "$questions" --model "$base/start/checkpoint"
    agentcli assign-credit "$run" --method rare-tool --overwrite -q >/dev/null
    once "$run" train train "$run" --preset "$preset" --seed "$seed" --model "$base/start/checkpoint" --credit rare-tool \
      --set train.objective=offline-ppo --set train.rows_per_update=8 --set train.epochs="${EPOCHS:-4}"
    evaluate "$run" "$seed" tools
  done
done
python "$root/scripts/report_rare_tool.py" "$out" "${seeds[@]}"
