#!/usr/bin/env bash
# Do the methods help a tiny policy? From one start per seed, loops of the same number of environment steps, evaluated on
# whole panels. Ends with OUT/REGIME/{results.json,results.md,*.svg} (docs/lab/methods.md says what they showed).
# usage: [REGIME=bathrooms|six|six-copies|search] scripts/reproduce_small.sh OUT [SEED...]     resumable: type it again, what has ended is
#   passed over. six: all task types. six-copies: the same from a start that was also shown DPEPO's copies of the environment. search:
#   CARL's setting, questions about a corpus; there L0 is the split test (reproduce_search.sh)
#   ITERATIONS, STEPS (environment steps of one iteration), SFT_UPDATES: the size; JOBS: runs at a time
#   METHODS: names of the table below, the first is the reference; PANELS: splits, -greedy behind one means one sample at T = 0
#   COMMON: settings that all loops share, in the place of the regime's own, e.g. COMMON="credit.penalty=outside"; a line of the table wins
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage='usage: [REGIME=bathrooms|six|six-copies|search] scripts/reproduce_small.sh OUT [SEED...]'
out=${1:?$usage}
shift
seeds=("$@")
(($#)) || seeds=(0 1)
export regime=${REGIME:-bathrooms}
panels='L0 L0-greedy L2' held_out=L0
methods='grpo gigpo rewardflow spark-grpo spark-rewardflow carl' calm='credit.penalty=outside train.learning_rate=1e-4'
case $regime in
  bathrooms) size=(quickstart 28 700 4000) copies=true methods+=' dpepo' calm='' ;;
  # 60 % of the preset's updates: policies start weak, and there is room. `calm`: without it runs stand still (docs/lab/methods.md).
  six) size=(quickstart-six 24 900 1800) copies='' ;;
  six-copies) size=(quickstart-six 24 900 3600) copies=true methods='grpo dpepo dpepo-grpo' ;;
  search) size=(quickstart-search 30 700 3000) copies='' methods='grpo grpo-outside search-carl search-carl-all' calm='' panels='L0 L0-greedy' held_out=test ;;
  *) printf 'error: REGIME: no regime %s; there are bathrooms, six, six-copies and search\n' "$regime" >&2; exit 2 ;;
esac
export preset=${size[0]} iterations=${ITERATIONS:-${size[1]}} steps=${STEPS:-${size[2]}} sft_updates=${SFT_UPDATES:-${size[3]}}
export common=${COMMON-$calm} panels=${PANELS:-$panels} held_out base=$out/$regime copies
jobs=${JOBS:-2}
read -ra methods <<<"${METHODS:-$methods}"

# Every variant: its name, and all settings in which it differs from the preset. -PATH: COMMON's setting of PATH is not for it (carl
# divides by no spread, so there is no inside and outside of it).
export variants='
grpo                    credit.method=grpo
gigpo                   credit.method=gigpo
rewardflow              credit.method=rewardflow
spark-grpo              rollout.method=spark credit.method=grpo
spark-rewardflow        rollout.method=spark credit.method=rewardflow
carl                    -credit.penalty rollout.method=carl credit.method=carl
dpepo                   rollout.method=dpepo credit.method=dpepo policy.max_tokens=72
grpo-inside             credit.method=grpo credit.penalty=inside
grpo-outside            credit.method=grpo credit.penalty=outside
gigpo-observation       credit.method=gigpo credit.state=observation
gigpo-exact             credit.method=gigpo credit.state=exact
rewardflow-all          credit.method=rewardflow credit.group=all
rewardflow-all-unscaled credit.method=rewardflow credit.group=all credit.scale=none
rewardflow-all-noprune  credit.method=rewardflow credit.group=all credit.pruning=false
rewardflow-all-mean     credit.method=rewardflow credit.group=all credit.distance=mean
rewardflow-all-observation credit.method=rewardflow credit.group=all credit.state=observation
spark-rewardflow-all    rollout.method=spark credit.method=rewardflow credit.group=all
rewardflow-release      credit.penalty=inside credit.method=rewardflow credit.form=release credit.normalise=mean credit.success_reward=10 credit.loop_steps=20
rewardflow-noprune      credit.method=rewardflow credit.pruning=false
rewardflow-observation  credit.method=rewardflow credit.state=observation
rewardflow-exact        credit.method=rewardflow credit.state=exact
rewardflow-mean         credit.method=rewardflow credit.distance=mean
rewardflow-unscaled     credit.method=rewardflow credit.scale=none
spark-fixed             rollout.method=spark rollout.branch=fixed:0.3 credit.method=grpo
spark-entropy           rollout.method=spark rollout.branch=entropy credit.method=grpo
spark-distinct          rollout.method=spark rollout.distinct=4 credit.method=grpo
carl-grpo               rollout.method=carl credit.method=grpo credit.prefix=duplicate train.update=critical train.aggregate=token
carl-random             -credit.penalty rollout.method=carl rollout.criterion=random credit.method=carl
carl-all                -credit.penalty rollout.method=carl credit.method=carl credit.update=all
carl-often              -credit.penalty rollout.method=carl credit.method=carl train.rows_per_update=8
search-carl             rollout.method=carl rollout.roots=3 rollout.leaves=9 credit.method=carl credit.first_phase=forked train.aggregate=token train.rows_per_update=24
search-carl-all         rollout.method=carl rollout.roots=3 rollout.leaves=9 credit.method=carl credit.update=all train.aggregate=token
search-carl-lite        rollout.method=carl rollout.roots=1 rollout.leaves=9 credit.method=carl train.aggregate=token train.rows_per_update=24
search-carl-random      rollout.method=carl rollout.roots=3 rollout.leaves=9 rollout.criterion=random credit.method=carl credit.first_phase=forked train.aggregate=token train.rows_per_update=24
search-carl-outcome     rollout.method=carl rollout.roots=3 rollout.leaves=9 credit.method=grpo credit.prefix=duplicate train.update=critical train.aggregate=token train.rows_per_update=24
dpepo-grpo              rollout.method=dpepo credit.method=grpo credit.invalid_penalty=0 policy.max_tokens=72
dpepo-penalty           rollout.method=dpepo credit.method=dpepo credit.invalid_penalty=0.1 policy.max_tokens=72
'
# The settings of a variant; status 1 where there is no such name.
settings_of() { awk -v name="$1" '$1 == name { $1 = ""; print; known = 1 } END { exit !known }' <<<"$variants"; }

. "$root/scripts/once.sh"

# start SEED: the policy that all methods start from. Where there is dpepo it was shown both forms, one action a response and several
# in copies.
start() {
  local seed=$1 own=$base/$1 demos=("$base/$1/demos") acts=(--set rollout.method=dpepo)
  once "$own/demos" demos demos --preset "$preset" --seed "$seed"
  if [[ $copies ]]; then
    demos+=("$own/demos-dpepo")
    once "$own/demos-dpepo" demos demos --preset "$preset" --seed "$seed" "${acts[@]}"
  fi
  once "$own/sft" sft sft "${demos[@]}" --preset "$preset" --set sft.updates="$sft_updates" --seed "$seed"
  evaluate "$own/sft" "$seed" ''
  [[ ! $copies ]] || evaluate "$own/sft" "$seed" dpepo- "${acts[@]}" --set policy.max_tokens=72
}

# evaluate RUN SEED PREFIX OPTIONS...: three samples a game at temperature 1, or one greedy.
evaluate() {
  local run=$1 seed=$2 prefix=$3 panel split how
  shift 3
  for panel in $panels; do
    how=(--temperature 1 --samples 3)
    [[ $panel == *-greedy ]] && how=(--temperature 0 --samples 1)
    split=${panel%-greedy}
    [[ $split == L0 ]] && split=$held_out
    once "$run" "evaluation/$prefix$panel" \
      eval "$run" --split "$split" "${how[@]}" --seed "$seed" --label "$prefix$panel" "$@"
  done
}

# train SEED NAME: the loop of a variant from the shared start, then its panels.
train() {
  local seed=$1 name=$2 how=() word all
  all=$(settings_of "$name")
  for word in $common $all; do
    [[ $word == -* || " $all " == *" -${word%%=*} "* ]] || how+=("$word")
  done
  once "$base/$seed/$name" run \
    run "$preset" --model "$base/$seed/sft/checkpoint" --iterations "$iterations" --seed "$seed" \
    --set rollout.tasks_per_step=64 --set rollout.budget="steps=$steps" "${how[@]/#/--set=}"
  evaluate "$base/$seed/$name" "$seed" ''
}

# attempt WORDS...: a failure is noted, and stops nothing else.
attempt() { bash -euo pipefail -c '"$@"' attempt "$@" || printf '%s\n' "$*" >>"$base/failed"; }

# each FUNCTION: with every line of stdin, JOBS at a time.
each() { xargs -r -P "$jobs" -L 1 bash -c 'attempt "$@"' each "$1"; }

export -f settings_of once start evaluate train attempt
for name in "${methods[@]}"; do
  settings_of "$name" >/dev/null || { printf 'error: METHODS: no method %s in this script\n' "$name" >&2; exit 2; }
  [[ $copies || $name != dpepo* ]] || { printf 'error: METHODS: %s needs REGIME=six-copies\n' "$name" >&2; exit 2; }
done
mkdir -p "$base"
: >"$base/failed"
printf '%s\n' "${seeds[@]}" | each start
for seed in "${seeds[@]}"; do
  # Without its start a seed has no loops.
  grep -qx "start $seed" "$base/failed" || printf "$seed %s\n" "${methods[@]}"
done | each train
report() {
  python "$root/scripts/reproduce_collect.py" "$base" "${seeds[@]}" --regime "$regime" --methods "${methods[@]}"
  python "$root/scripts/reproduce_report.py" --from "$base/results.json" >"$base/results.md"
  cat "$base/results.md"
}
export root base regime
report || echo report >>"$base/failed"
python "$root/scripts/plot_results.py" --from "$base/results.json" -o "$base" || echo pictures >>"$base/failed"
printf 'look at a seed: agentcli view %q/%s/*/ --no-accounts -o %q\n' "$base" "${seeds[0]}" "$base/view.html" >&2
[[ -s $base/failed ]] || exit 0
printf 'error: failed: %s; type the command again, it goes on\n' "$(paste -sd, "$base/failed" | sed 's/,/, /g')" >&2
exit 1
