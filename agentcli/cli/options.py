"""The vocabulary of the command line: every option that commands share, defined once.

A command picks the options that take effect there. If a command uses an option for
another setting, `to()` redirects it: `eval --split` is evaluation.split. An option of a
single command is defined in that command's file.
"""

from dataclasses import replace
from pathlib import Path

from agentcli.cli import completion
from agentcli.cli.command import (
    Option,
    file_option,
    method_option,
    policy_option,
    running_option,
    world_option,
)
from agentcli.cli.completion import fixed

ENV = world_option(
    "--env",
    "World to play in.",
    str,
    "NAME",
    completion.worlds,
    path="environment.name",
)
DATA = world_option(
    "--data",
    "Folder of the world's real data set.",
    str,
    "DIR",
    path="environment.data",
)
SPLIT = world_option(
    "--split",
    "Split (`agentcli env list` explains them); without it the one that the world is "
    "trained on.",
    metavar="NAME",
    values=completion.splits,
    path="environment.split",
)
TASKS = world_option(
    "--tasks", "Only the panel's first N tasks.", int, path="environment.tasks"
)
PANEL = world_option(
    "--panel", "Panel file instead of a split.", str, "FILE", path="environment.panel"
)
WHERE = world_option(
    "--where",
    "Keep tasks of these kinds, rooms, ...",
    list[str],
    "KEY=A,B,KEY=C",
    path="environment.where",
)
SHARD = world_option(
    "--shard",
    "Only every N-th task, from the I-th on; `merge` joins the N runs.",
    metavar="I/N",
    path="environment.shard",
)
MAX_STEPS = world_option(
    "--max-steps", "Horizon: steps per episode.", int, path="environment.max_steps"
)

POLICY = policy_option(
    "--policy",
    "transformers, vllm, openai, expert, search or random.",
    metavar="KIND",
    values=completion.policies,
    path="policy.kind",
)
MODEL = policy_option(
    "--model", "Model directory or hub id.", str, "DIR|ID", path="policy.model"
)
ADAPTER = policy_option(
    "--adapter", "PEFT adapter on top of the model.", str, "DIR", path="policy.adapter"
)
BASE_URL = policy_option(
    "--base-url",
    "Endpoint of --policy openai: http://HOST:PORT/v1.",
    metavar="URL",
    path="policy.endpoint.base_url",
)
DEVICE = policy_option(
    "--device",
    "auto, cpu, cuda, cuda:1, ...",
    metavar="NAME",
    values=fixed("auto", "cpu", "cuda"),
    path="policy.device",
)
DTYPE = policy_option(
    "--dtype",
    "auto, float32, bfloat16, ...",
    metavar="NAME",
    values=completion.dtypes,
    path="policy.dtype",
)
TEMPERATURE = policy_option(
    "--temperature",
    "Sampling temperature; 0 is greedy.",
    float,
    "T",
    path="policy.temperature",
)
HISTORY = policy_option(
    "--history",
    "Past (observation, action) pairs in a prompt.",
    int,
    path="prompt.history",
)

METHOD = method_option(
    "--method",
    "How trees grow (`assign-credit --method` says how steps are credited): chain, "
    "spark, carl, arpo, treerl, treerpo, dpepo, rare-tool, criticality, or "
    "FILE.py:FUNCTION. `--method NAME --help` shows its options, and some that few "
    "runs need.",
    metavar="NAME",
    values=completion.exploration_methods,
    path="rollout.method",
)
LEAVES = method_option(
    "--leaves",
    "Leaf budget N of a tree (chain: the group size).",
    int,
    path="rollout.leaves",
)
DISTINCT = method_option(
    "--distinct",
    "Sample a child again, at most N times, while its action is a sibling's; 0: never.",
    int,
    path="rollout.distinct",
)
DEADLINE = method_option(
    "--deadline",
    "Wall clock of one tree; the same seed then gives other bytes.",
    float,
    "S",
    path="rollout.deadline_seconds",
)
MINIMUM_LEAVES = method_option(
    "--minimum-leaves",
    "Leaves from which a tree cut by --deadline is kept.",
    int,
    hidden=True,
    path="rollout.minimum_leaves",
)
BUDGET = method_option(
    "--budget",
    "End when this is spent: tokens=N (generated), steps=N, leaves=N, or groups=N "
    "(trees with a success and a failure).",
    metavar="UNIT=N",
    values=fixed("tokens=", "steps=", "leaves=", "groups="),
    path="rollout.budget",
)
PRM = method_option(
    "--prm",
    "Process reward model that scores every step; credit grpo-prm reads it.",
    str,
    "DIR|ID",
    hidden=True,
    path="rollout.prm",
)
ITERATION = method_option(
    "--iteration",
    "Take the tasks and the seed of this iteration of `run`.",
    int,
    "K",
    hidden=True,
    path="rollout.iteration",
)

CREDIT_METHOD = method_option(
    "--credit",
    "How steps are credited: grpo, rewardflow, spark, carl, ...",
    metavar="NAME",
    values=completion.credit_methods,
    path="credit.method",
)
LEARNING_RATE = method_option(
    "--learning-rate",
    "Learning rate of the optimiser.",
    float,
    path="train.learning_rate",
)
LORA = method_option(
    "--lora",
    "Train a LoRA adapter of this rank; 0: all weights.",
    int,
    "RANK",
    path="train.lora.rank",
)

TRACKER = running_option(
    "--tracker",
    "Also log to tensorboard, wandb, trackio or mlflow; repeatable.",
    list[str],
    "NAME",
    completion.trackers,
    path="tracking.to",
)
SEED = running_option("--seed", "Every random draw derives from it.", int, path="seed")
CONCURRENCY = running_option(
    "--concurrency", "Tasks in flight.", int, path="rollout.concurrency"
)
ON = running_option(
    "--on",
    "Where trees grow: local, ray (workers on this machine) or ray://HOST:PORT.",
    metavar="PLACE",
    values=fixed("local", "ray", "ray://"),
    path="cluster.on",
)
WORKERS = running_option(
    "--workers",
    "Workers of --on ray, --concurrency tasks in each.",
    int,
    path="cluster.workers",
)

CONFIG = file_option(
    "--config -c",
    "YAML file over the preset; repeatable, the last one wins.",
    list[Path],
    "FILE",
)
SET = file_option(
    "--set",
    "One setting, for instance --set rollout.leaves=4; repeatable.",
    list[str],
    "PATH=VALUE",
)
OUT = file_option(
    "--out -o", "Where to write; without it a new folder under runs/.", Path, "DIR"
)
RESUME = file_option(
    "--resume",
    "Go on with what an interrupted command left; nothing is done twice.",
    bool,
)
OVERWRITE = file_option("--overwrite", "Replace existing output.", bool)
DRY_RUN = file_option(
    "--dry-run", "Show settings, inputs, outputs and counts; write nothing.", bool
)
JSON = file_option("--json", "JSON lines on stdout.", bool)
QUIET = file_option("--quiet -q", "No progress, notes or tables.", bool)
ONLY_ANSWER = replace(QUIET, help="No progress or notes, only the answer.")

PRESET_HELP = "Preset by name or path; `agentcli preset list` shows them."
PRESET = file_option("--preset", PRESET_HELP, str, "NAME", completion.presets)
PRESET_ARGUMENT = Option("preset", PRESET_HELP, values=completion.presets)
RUN_ARGUMENT = Option("run", "Run directory to read; runs/latest without it.", Path)

LAYERS = (PRESET, CONFIG, SET)
WORLD = (ENV, DATA, SPLIT, TASKS, PANEL, WHERE, MAX_STEPS)
SAMPLING = (POLICY, MODEL, ADAPTER, BASE_URL, DEVICE, DTYPE, TEMPERATURE, HISTORY)
GROWTH = (LEAVES, DISTINCT, BUDGET, DEADLINE, MINIMUM_LEAVES)
PACE = (SEED, CONCURRENCY)
MACHINES = (ON, WORKERS)
OUTPUT = (OUT, RESUME, OVERWRITE)
REPORTING = (DRY_RUN, JSON, QUIET)
