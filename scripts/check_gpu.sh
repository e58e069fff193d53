#!/usr/bin/env bash
# Checks on a machine with an NVIDIA GPU what was written and never run on one; docs/guides/gpu.md says what each step shows.
# One line a step, `ok` or `FAILED`; a failure stops nothing. Exit code 1 if any step failed.
# usage: scripts/check_gpu.sh train [DIR]            needs no network, no model and no vLLM; under 10 minutes
#        scripts/check_gpu.sh vllm MODEL [DIR]       MODEL: a directory or hub id, Qwen/Qwen2.5-0.5B-Instruct for instance
#        scripts/check_gpu.sh train --small [DIR]    the same steps with tiny shapes, on a CPU too
# Needs agentcli[alfworld,test] in the active environment; vllm needs agentcli[vllm] besides.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage='usage: scripts/check_gpu.sh train [--small] [DIR] | vllm MODEL [DIR]'
part=${1:?$usage}
shift
small=''
case $part in
  train) if [[ ${1:-} == --small ]]; then small=--small; shift; fi ;;
  vllm) model=${1:?$usage}; shift ;;
  *) printf 'error: %s\n' "$usage" >&2; exit 2 ;;
esac
out=${1:-gpu-check}
[[ ! -e $out ]] || { printf 'error: %s exists; name another folder\n' "$out" >&2; exit 2; }
[[ -n $small ]] || python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
  { printf 'error: torch sees no GPU; type: agentcli doctor\n' >&2; exit 4; }
mkdir -p "$out"
failed=0

# step NAME COMMAND...: one line that says whether the command ended well; what it printed is in the folder.
step() {
  local name=$1 log=$out/${1// /-}.log begun=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    printf 'ok      %4d s  %s\n' $((SECONDS - begun)) "$name"
  else
    printf 'FAILED  %4d s  %s: %s (%s)\n' $((SECONDS - begun)) "$name" "$(grep -v '^$' "$log" | tail -1 | cut -c1-200)" "$log"
    failed=1
  fi
}

# compare ONE OTHER: the figures of two trainings agree up to rounding in 16 bits.
compare() { python "$root/scripts/check_gpu.py" same "$out/$1" "$out/$2"; }

# killed: a loop that is killed in its second iteration and resumed.
killed() {
  agentcli run "${loop[@]}" -o "$out/killed" &
  local loop_process=$!
  until [[ -e $out/killed/iteration_001 ]] || ! kill -0 "$loop_process" 2>/dev/null; do sleep 0.2; done
  kill -9 "$loop_process"
  wait "$loop_process"
  agentcli run "${loop[@]}" -o "$out/killed" --resume
}

world=(--preset quickstart -q)
if [[ $part == train ]]; then
  few=(--tasks 8 --leaves 8)
  updates=300 iterations=3
  if [[ -n $small ]]; then few=(--tasks 2 --leaves 4) updates=20; fi
  tiny=$out/sft/checkpoint
  loop=(--preset quickstart --model "$tiny" --iterations "$iterations" --tasks-per-iteration 2 -q)
  step 'demonstrations' agentcli demos "${world[@]}" --count 60 -o "$out/demos"
  step 'sft' agentcli sft "$out/demos" "${world[@]}" --set sft.updates=$updates -o "$out/sft"
  step 'rollout' agentcli rollout "${world[@]}" --model "$tiny" "${few[@]}" -o "$out/trees"
  step 'credit' agentcli assign-credit "$out/trees" -q
  step 'train, plain rows' agentcli train "$out/trees" -q --set train.packing=off -o "$out/plain"
  step 'train, packed' agentcli train "$out/trees" -q --set train.packing=on -o "$out/packed"
  step 'packed is plain' compare plain packed
  step 'train, nothing recomputed' agentcli train "$out/trees" -q --set train.packing=off --set train.gradient_checkpointing=false -o "$out/kept"
  step 'recomputed is kept' compare plain kept
  step 'train, adapter' agentcli train "$out/trees" -q --lora 8 -o "$out/lora"
  step 'loop' agentcli run "${loop[@]}" -o "$out/loop"
  step 'loop, adapter' agentcli run "${loop[@]}" --lora 8 -o "$out/loop-lora"
  # Two processes on one GPU are refused by NCCL.
  if [[ -n $small ]] || python -c 'import sys, torch; sys.exit(torch.cuda.device_count() < 2)'; then
    step 'loop, sharded' agentcli run "${loop[@]}" --set train.sharding=fsdp --set run.processes=2 -o "$out/loop-sharded"
  fi
  step 'loop, killed and resumed' killed
  step 'killed is undisturbed' compare loop killed
  step 'speed and memory' python "$root/scripts/check_gpu.py" speed "$out" $small
  [[ ! -e $out/speed.json ]] || cat "$out/speed.json"
else
  few=(--env alfworld --tasks 2 --leaves 4 --max-steps 4 -q)
  # At the default share of the memory: a smaller one hides what the trainer does not give back.
  loop=(--preset spark-alfworld --model "$model" --policy vllm --iterations 3 --tasks-per-iteration 2 --leaves 4 --max-steps 4 --learning-rate 1e-5 -q)
  step 'tests of the vllm policy' python -m pytest -m 'slow or not slow' -q "$root/tests/with_vllm"
  step 'rollout by transformers' agentcli rollout "${few[@]}" --model "$model" -o "$out/transformers"
  step 'rollout by vLLM' agentcli rollout "${few[@]}" --model "$model" --policy vllm -o "$out/vllm"
  step 'loop, engine asleep at level 1' agentcli run "${loop[@]}" -o "$out/loop"
  step 'loop, engine asleep at level 2' agentcli run "${loop[@]}" --set policy.vllm.sleep=2 -o "$out/loop-2"
  step 'loop, adapter' agentcli run "${loop[@]}" --lora 16 -o "$out/loop-lora"
  step 'credit' agentcli assign-credit "$out/vllm" -q
  step 'train, adapter on a base of 4 bits' agentcli train "$out/vllm" --lora 16 --set train.lora.bits=4 -o "$out/four-bits" -q
  step 'speed' python "$root/scripts/bench_vllm.py" --model "$model" --prompts 64 --siblings 8 --words 800 --max-tokens 128
  printf 'gaps between sampler and trainer: '
  grep -ho '"gap_m[a-z]*":[^,]*' "$out"/loop*/iteration_*/metrics.jsonl | sort -u | tail -6 | tr '\n' ' '
  printf '\n'
fi
exit $failed
