#!/usr/bin/env bash
# Checks on a machine with an NVIDIA GPU what was written and never run on one; docs/guides/gpu.md says what each line shows.
# usage: scripts/check_gpu.sh MODEL [DIR]     MODEL: a directory or hub id, Qwen/Qwen2.5-0.5B-Instruct for instance; DIR: a new folder
# Needs agentcli[alfworld,vllm,test] in the environment that is active.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=${1:?usage: scripts/check_gpu.sh MODEL [DIR]}
out=${2:-gpu-check}
[[ ! -e $out ]] || { printf 'error: %s exists; name another folder\n' "$out" >&2; exit 2; }
python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { printf 'error: torch sees no GPU; type: agentcli doctor\n' >&2; exit 4; }
mkdir -p "$out"

few=(--env alfworld --tasks 2 --leaves 4 --max-steps 4 -q)
loop=(spark-alfworld --model "$model" --policy vllm --iterations 3 --tasks-per-iteration 2 --leaves 4 --max-steps 4
  --set policy.vllm.gpu_memory_utilization=0.6 --learning-rate 1e-5 -q)

step() { printf '\n== %s\n' "$1"; }

step 'the tests of the vllm policy: gaps, seeds, reloads, kills'
(cd "$root" && python -m pytest -m "slow or not slow" -v tests/with_vllm)

step 'sampling by transformers and by vLLM'
agentcli rollout "${few[@]}" --model "$model" -o "$out/transformers"
agentcli rollout "${few[@]}" --model "$model" --policy vllm -o "$out/vllm"

step 'a loop whose engine sleeps while the GPU trains, at each level, and with an adapter'
agentcli run "${loop[@]}" -o "$out/loop"
agentcli run "${loop[@]}" --set policy.vllm.sleep=2 -o "$out/loop-2"
agentcli run "${loop[@]}" --lora 16 -o "$out/loop-lora"

step 'the largest gap between sampler and trainer, by run'
grep -ho '"gap_m[a-z]*":[^,]*' "$out"/loop*/iteration_*/metrics.jsonl | sort -u | tail -20

step 'a 4-bit adapter'
agentcli assign-credit "$out/vllm" -q
agentcli train "$out/vllm" --lora 16 --set train.lora.bits=4 -o "$out/four-bits" -q

step 'speed'
python "$root/scripts/bench_vllm.py" --model "$model" --prompts 64 --siblings 8 --words 800 --max-tokens 128
