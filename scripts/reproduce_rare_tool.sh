#!/usr/bin/env bash
# Does rarity help a tiny policy to use tools (Rare-tool)? From one start per seed: the base model without and with tools, imitation of bare
# answers, and offline PPO on trajectories whose tools a judge chose greedily, at random, and rarity first. Held-out questions.
# Each is trained twice: gently, with Rare-tool's early stop, and at a higher rate without it. Scores are Rare-tool's, from 0 to 10.
# usage: scripts/reproduce_rare_tool.sh OUT [SEED...]     resumable: type it again, what has ended is passed over
#   QUESTIONS, TEST: questions that are rolled and evaluated; SFT_UPDATES: of the start; EPOCHS: of PPO; LEARNING_RATE, WHOLE_RATE: of PPO
#   gently and not; JOBS: seeds at a time. Filters, batches, clip and penalty are Rare-tool's; the rates are those of a policy
#   that is trained in full, without an adapter.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:?usage: scripts/reproduce_rare_tool.sh OUT [SEED...]}
shift
seeds=("$@")
(($#)) || seeds=(0 1 2 3 4)
export questions=${QUESTIONS:-1000} test=${TEST:-280} preset=quickstart-tools epochs=${EPOCHS:-4} out
export rate=${LEARNING_RATE:-3e-5} whole_rate=${WHOLE_RATE:-1e-4} updates=${SFT_UPDATES:-} jobs=${JOBS:-2}
export closed='environment.options={tools: []}'

. "$root/scripts/once.sh"

# evaluate RUN SEED LABEL OPTIONS...: greedy answers to the held-out questions.
evaluate() {
  local run=$1 seed=$2 label=$3
  shift 3
  once "$run" "evaluation/$label" eval "$run" --preset "$preset" --model "$run/checkpoint" --split test --tasks "$test" \
    --temperature 0 --seed "$seed" --label "$label" "$@"
}

# learn SEED ROLLOUT RUN RATE OPTIONS...: offline PPO on a rollout's trajectories, and its evaluation.
learn() {
  local seed=$1 rollout=$2 run=$3 rate=$4
  shift 4
  once "$run" train train "$rollout" --preset "$preset" --seed "$seed" --model "$out/$seed/start/checkpoint" --credit rare-tool \
    --set train.objective=offline-ppo --set train.rows_per_update=8 --set train.epochs="$epochs" --set train.learning_rate="$rate" "$@"
  evaluate "$run" "$seed" tools
}

# variants SEED: every row of the table.
variants() {
  local seed=$1 base=$out/$1 rule run sizes shorter=()
  sizes=(--preset "$preset" --seed "$seed")
  [[ -z $updates ]] || shorter=(--set "sft.updates=$updates")
  once "$base/demos" demos demos "${sizes[@]}"
  once "$base/start" sft sft "$base/demos" "${sizes[@]}" "${shorter[@]}"
  evaluate "$base/start" "$seed" tools
  evaluate "$base/start" "$seed" closed --set "$closed"

  # SFT: question -> letter, no tools (Rare-tool section 3.1). The searching expert guesses, and right guesses are kept: its words are those
  # that the start's tokenizer knows.
  once "$base/letters" demos demos "${sizes[@]}" --set demos.keep=success --set "$closed"
  once "$base/sft" sft sft "$base/letters" "${sizes[@]}" "${shorter[@]}" --model "$base/start/checkpoint" --set "$closed"
  evaluate "$base/sft" "$seed" closed --set "$closed"

  for rule in greedy random rarity; do
    run=$base/$rule
    once "$run" rollout rollout "${sizes[@]}" --method rare-tool --select "$rule" --leaves 1 \
      --tasks "$questions" --model "$base/start/checkpoint"
    agentcli assign-credit "$run" --method rare-tool --set credit.score_scale=1 --set credit.drop_unsound=true \
      --set credit.drop_wrong=true --resume -q >/dev/null
    learn "$seed" "$run" "$run" "$rate"
    learn "$seed" "$run" "$run-whole" "$whole_rate" --set train.options.stop_at=1e9
  done
}

export -f once evaluate learn variants
printf '%s\n' "${seeds[@]}" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'variants "$1"' variants {}
python "$root/scripts/report_rare_tool.py" "$out" "${seeds[@]}"
printf 'look at a seed: agentcli view %q/%s/{greedy,random,rarity} -o %q\n' "$out" "${seeds[0]}" "$out/view.html" >&2
