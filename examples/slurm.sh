#!/usr/bin/env bash
# One shard of a rollout or an evaluation for each task of a SLURM job array:
#
#   sbatch --array 1-8 slurm.sh COMMAND RUN OPTIONS...
#   agentcli merge RUN/part-* -o WHOLE
#
# The array's indices begin at 1. A task that is submitted again resumes.
#SBATCH --job-name=agentcli
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --requeue
set -euo pipefail

command=$1
run=$2
shift 2
part=$run/part-$SLURM_ARRAY_TASK_ID
shard=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT

exec agentcli "$command" "$@" --shard "$shard" -o "$part" --resume
