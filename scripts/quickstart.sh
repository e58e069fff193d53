#!/usr/bin/env bash
# The whole chain on this machine: a virtual environment, demonstrations, sft, the loop, and evaluations before and after.
# usage: scripts/quickstart.sh [DIR] [--preset quickstart|quickstart-six|quickstart-webshop|quickstart-scienceworld|quickstart-sokoban|quickstart-ezpoints|quickstart-search|quickstart-sokoban-pixels] [--seed N] [--overwrite]    DIR: ./quickstart
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder='' preset=quickstart seed=0 overwrite=()
while (($#)); do
  case $1 in
    --seed) seed=${2:?--seed needs a number}; shift ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --overwrite) overwrite=(--overwrite) ;;
    -*) printf 'error: unknown option %s; usage: scripts/quickstart.sh [DIR] [--preset NAME] [--seed N] [--overwrite]\n' "$1" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done
folder=${folder:-quickstart}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [[ -e $folder/runs/demos && ${#overwrite[@]} -eq 0 ]]; then
  printf 'error: %s holds a quickstart; add --overwrite, or name another DIR\n' "$folder/runs" >&2
  exit 2
fi

"$root/scripts/install.sh" "$folder/.venv" alfworld,plots,pytest,scienceworld,search,tools,vision,webshop
export PATH=$folder/.venv/bin:$PATH
cd "$folder"

# stage NAME COMMAND...: run it with what all stages share, and say how long it took.
stage() {
  local name=$1 begun=$SECONDS
  shift
  printf '\n== %s: %s\n' "$name" "$*" >&2
  "$@" --seed "$seed" "${overwrite[@]}"
  printf '%s\t%d\n' "$name" $((SECONDS - begun)) >>runs/seconds.tsv
}

# evaluations RUN: three samples a game at temperature 1, and one greedy.
evaluations() {
  stage "eval $1 sampled" agentcli eval "$1" --preset "$preset" --temperature 1 --samples 3 --label sampled
  stage "eval $1 greedy" agentcli eval "$1" --preset "$preset" --temperature 0 --samples 1 --label greedy
}

mkdir -p runs
rm -f runs/seconds.tsv
stage demos agentcli demos --preset "$preset" -o runs/demos
stage sft agentcli sft runs/demos --preset "$preset" -o runs/sft
evaluations runs/sft
trees=(agentcli rollout --preset "$preset" --model runs/sft/checkpoint --tasks 32 --leaves 8)
stage chain "${trees[@]}" --method chain -o runs/chain
stage spark "${trees[@]}" --method spark -o runs/x
stage run agentcli run --preset "$preset" --model runs/sft/checkpoint -o runs/rl
evaluations runs/rl
python "$root/scripts/quickstart_report.py" runs
agentcli plot runs/rl -o runs/success.svg --overwrite >/dev/null
agentcli view runs/sft runs/rl runs/x runs/chain --credit grpo --credit rewardflow -o runs/view.html --overwrite >/dev/null
printf '\nsuccess over the loop: %s\nall of it as a page for the browser: %s\nlook at the failures: . %q && cd %q && agentcli show runs/rl --evaluation greedy --failed\n' \
  "$folder/runs/success.svg" "$folder/runs/view.html" "$folder/.venv/bin/activate" "$folder"
