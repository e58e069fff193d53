"""The vocabulary of the command line: every option that commands share, defined once.

A command picks the options that take effect there. If a command uses an option for
another setting, `to()` redirects it: `eval --split` is evaluation.split. An option of a
single command is defined in that command's file.
"""

from pathlib import Path

from agentcli.cli import completion
from agentcli.cli.completion import fixed
from agentcli.cli.option import (
    Option,
    file_option,
    method_option,
    policy_option,
    running_option,
    world_option,
)

ENV = world_option(
    "--env", "environment.name", "World to play in.", str, "NAME", completion.worlds
)
DATA = world_option(
    "--data", "environment.data", "Folder of the world's real data set.", str, "DIR"
)
SPLIT = world_option(
    "--split",
    "environment.split",
    "Split (`agentcli env list` explains them); without it the one that the world is "
    "trained on.",
    metavar="NAME",
    values=completion.splits,
)
TASKS = world_option(
    "--tasks", "environment.tasks", "Only the panel's first N tasks.", int
)
PANEL = world_option(
    "--panel", "environment.panel", "Panel file instead of a split.", str, "FILE"
)
WHERE = world_option(
    "--where",
    "environment.where",
    "Keep tasks of these kinds, rooms, ...",
    list[str],
    "KEY=A,B,KEY=C",
)
SHARD = world_option(
    "--shard",
    "environment.shard",
    "Only every N-th task, from the I-th on; `merge` joins the N runs.",
    metavar="I/N",
)
MAX_STEPS = world_option(
    "--max-steps", "environment.max_steps", "Horizon: steps per episode.", int
)

POLICY = policy_option(
    "--policy",
    "policy.kind",
    "transformers, vllm, openai, expert, search or random.",
    metavar="KIND",
    values=completion.policies,
)
MODEL = policy_option(
    "--model", "policy.model", "Model directory or hub id.", str, "DIR|ID"
)
ADAPTER = policy_option(
    "--adapter", "policy.adapter", "PEFT adapter on top of the model.", str, "DIR"
)
BASE_URL = policy_option(
    "--base-url",
    "policy.endpoint.base_url",
    "Endpoint of --policy openai: http://HOST:PORT/v1.",
    metavar="URL",
)
DEVICE = policy_option(
    "--device",
    "policy.device",
    "auto, cpu, cuda, cuda:1, ...",
    metavar="NAME",
    values=fixed("auto", "cpu", "cuda"),
)
DTYPE = policy_option(
    "--dtype",
    "policy.dtype",
    "auto, float32, bfloat16, ...",
    metavar="NAME",
    values=completion.dtypes,
)
TEMPERATURE = policy_option(
    "--temperature",
    "policy.temperature",
    "Sampling temperature; 0 is greedy.",
    float,
    "T",
)
HISTORY = policy_option(
    "--history", "prompt.history", "Past (observation, action) pairs in a prompt.", int
)

METHOD = method_option(
    "--method",
    "rollout.method",
    "How trees grow (`assign-credit --method` says how steps are credited): chain, "
    "spark, carl, arpo, treerl, treerpo, dpepo, rare-tool, or FILE.py:FUNCTION. "
    "`--method NAME --help` shows its options, and some that few runs need.",
    metavar="NAME",
    values=completion.exploration_methods,
)
LEAVES = method_option(
    "--leaves",
    "rollout.leaves",
    "Leaf budget N of a tree (chain: the group size).",
    int,
)
DISTINCT = method_option(
    "--distinct",
    "rollout.distinct",
    "Sample a child again, at most N times, while its action is a sibling's; 0: never.",
    int,
)
DEADLINE = method_option(
    "--deadline",
    "rollout.deadline_seconds",
    "Wall clock of one tree; the same seed then gives other bytes.",
    float,
    "S",
)
MINIMUM_LEAVES = method_option(
    "--minimum-leaves",
    "rollout.minimum_leaves",
    "Leaves from which a tree cut by --deadline is kept.",
    int,
    hidden=True,
)
BUDGET = method_option(
    "--budget",
    "rollout.budget",
    "End when this is spent: tokens=N (generated), steps=N, leaves=N, or groups=N "
    "(trees with a success and a failure).",
    metavar="UNIT=N",
    values=fixed("tokens=", "steps=", "leaves=", "groups="),
)
PRM = method_option(
    "--prm",
    "rollout.prm",
    "Process reward model that scores every step; credit grpo-prm reads it.",
    str,
    "DIR|ID",
    hidden=True,
)
ITERATION = method_option(
    "--iteration",
    "rollout.iteration",
    "Take the tasks and the seed of this iteration of `run`.",
    int,
    "K",
    hidden=True,
)

CREDIT_METHOD = method_option(
    "--credit",
    "credit.method",
    "How steps are credited: grpo, rewardflow, spark, carl, ...",
    metavar="NAME",
    values=completion.credit_methods,
)
LEARNING_RATE = method_option(
    "--learning-rate", "train.learning_rate", "Learning rate of the optimiser.", float
)
LORA = method_option(
    "--lora",
    "train.lora.rank",
    "Train a LoRA adapter of this rank; 0: all weights.",
    int,
    "RANK",
)

TRACKER = running_option(
    "--tracker",
    "tracking.to",
    "Also log to tensorboard, wandb or trackio; repeatable.",
    list[str],
    "NAME",
    completion.trackers,
)
SEED = running_option("--seed", "seed", "Every random draw derives from it.", int)
CONCURRENCY = running_option(
    "--concurrency", "rollout.concurrency", "Tasks in flight.", int
)
ON = running_option(
    "--on",
    "cluster.on",
    "Where trees grow: local, ray (workers on this machine) or ray://HOST:PORT.",
    metavar="PLACE",
    values=fixed("local", "ray", "ray://"),
)
WORKERS = running_option(
    "--workers",
    "cluster.workers",
    "Workers of --on ray, --concurrency tasks in each.",
    int,
)

CONFIG = file_option(
    "--config -c",
    None,
    "YAML file over the preset; repeatable, the last one wins.",
    list[Path],
    "FILE",
)
SET = file_option(
    "--set",
    None,
    "One setting, for instance --set rollout.leaves=4; repeatable.",
    list[str],
    "PATH=VALUE",
)
OUT = file_option(
    "--out -o",
    None,
    "Where to write; without it a new folder under runs/.",
    Path,
    "DIR",
)
RESUME = file_option(
    "--resume",
    None,
    "Go on with what an interrupted command left; nothing is done twice.",
    bool,
)
OVERWRITE = file_option("--overwrite", None, "Replace existing output.", bool)
DRY_RUN = file_option(
    "--dry-run", None, "Show settings, inputs, outputs and counts; write nothing.", bool
)
JSON = file_option("--json", None, "JSON lines on stdout.", bool)
QUIET = file_option("--quiet -q", None, "No progress, notes or tables.", bool)

PRESET_HELP = "Preset by name or path; `agentcli preset list` shows them."
PRESET = file_option("--preset", None, PRESET_HELP, str, "NAME", completion.presets)
PRESET_ARGUMENT = Option("preset", None, PRESET_HELP, values=completion.presets)
RUN_ARGUMENT = Option(
    "run", None, "Run directory to read; runs/latest without it.", Path
)

LAYERS = (PRESET, CONFIG, SET)
WORLD = (ENV, DATA, SPLIT, TASKS, PANEL, WHERE, MAX_STEPS)
SAMPLING = (POLICY, MODEL, ADAPTER, BASE_URL, DEVICE, DTYPE, TEMPERATURE, HISTORY)
GROWTH = (LEAVES, DISTINCT, BUDGET, DEADLINE, MINIMUM_LEAVES)
PACE = (SEED, CONCURRENCY)
MACHINES = (ON, WORKERS)
OUTPUT = (OUT, RESUME, OVERWRITE)
REPORTING = (DRY_RUN, JSON, QUIET)
