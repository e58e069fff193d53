"""The vocabulary of the command line: every option once, with the setting it overrides.

A command picks the options that take effect there. An option with a `path` defaults to
None, so that one that was not given never overrides a file; `to()` points an option at
another setting where a command means another one by it (`eval --split` is
evaluation.split). Options without a path steer the command itself and are never
recorded as settings.
"""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from agentcli.cli import completion
from agentcli.cli.completion import Values
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo


@dataclasses.dataclass(frozen=True)
class Option:
    """One option: its parameter name, how it is typed (positional where nothing is
    declared), its type, the setting that it overrides, and the values that the shell
    offers for it.
    """

    name: str
    declarations: tuple[str, ...]
    kind: Any
    help: str
    path: str | None = None
    panel: str = "Options"
    metavar: str | None = None
    values: Values | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every way to write it: --json; --quiet and -q; --x and --no-x."""
        return tuple(
            name for declaration in self.declarations for name in declaration.split("/")
        )

    @property
    def takes_value(self) -> bool:
        return self.kind is not bool

    def to(
        self, path: str, help: str | None = None, values: Values | None = None
    ) -> "Option":
        """The same option for another setting."""
        return dataclasses.replace(
            self, path=path, help=help or self.help, values=values or self.values
        )


def _setting(
    flag: str,
    kind: Any,
    path: str,
    help: str,
    panel: str,
    metavar: str | None = None,
    values: Values | None = None,
) -> Option:
    names = tuple(flag.split())
    name = names[0].lstrip("-").partition("/")[0].replace("-", "_")
    return Option(name, names, kind, help, path, panel, metavar, values)


def _control(
    flag: str,
    kind: Any,
    help: str,
    metavar: str | None = None,
    values: Values | None = None,
) -> Option:
    names = tuple(flag.split())
    return Option(
        names[0].lstrip("-").replace("-", "_"),
        names,
        kind,
        help,
        None,
        "Files and output",
        metavar,
        values,
    )


ENV = _setting(
    "--env",
    str,
    "environment.name",
    "World to play in.",
    "World",
    "NAME",
    completion.worlds,
)
DATA = _setting(
    "--data",
    str,
    "environment.data",
    "Folder of the world's real data set.",
    "World",
    "DIR",
)
SPLIT = _setting(
    "--split",
    str,
    "environment.split",
    "Split; without it the one that the world is trained on.",
    "World",
    "NAME",
    completion.splits,
)
TASKS = _setting(
    "--tasks", int, "environment.tasks", "Only the panel's first N tasks.", "World", "N"
)
PANEL = _setting(
    "--panel",
    str,
    "environment.panel",
    "Panel file instead of a split.",
    "World",
    "FILE",
)
WHERE = _setting(
    "--where",
    list[str],
    "environment.where",
    "Keep tasks of these kinds, rooms, ...",
    "World",
    "KEY=A,B,KEY=C",
)
SHARD = _setting(
    "--shard",
    str,
    "environment.shard",
    "Only every N-th task of the panel, from the I-th on; `agentcli merge` joins the "
    "N runs.",
    "World",
    "I/N",
)
MAX_STEPS = _setting(
    "--max-steps",
    int,
    "environment.max_steps",
    "Horizon: steps per episode.",
    "World",
    "N",
)

POLICY = _setting(
    "--policy",
    str,
    "policy.kind",
    "transformers, openai, expert, search or random.",
    "Policy",
    "KIND",
    completion.policies,
)
MODEL = _setting(
    "--model", str, "policy.model", "Model directory or hub id.", "Policy", "DIR|ID"
)
ADAPTER = _setting(
    "--adapter",
    str,
    "policy.adapter",
    "PEFT adapter on top of the model.",
    "Policy",
    "DIR",
)
BASE_URL = _setting(
    "--base-url",
    str,
    "policy.endpoint.base_url",
    "Endpoint of --policy openai: http://HOST:PORT/v1.",
    "Policy",
    "URL",
)
DEVICE = _setting(
    "--device",
    str,
    "policy.device",
    "auto, cpu, cuda, cuda:1, ...",
    "Policy",
    "NAME",
    completion.fixed("auto", "cpu", "cuda"),
)
DTYPE = _setting(
    "--dtype",
    str,
    "policy.dtype",
    "auto, float32, bfloat16, ...",
    "Policy",
    "NAME",
    completion.dtypes,
)
TEMPERATURE = _setting(
    "--temperature",
    float,
    "policy.temperature",
    "Sampling temperature; 0 is greedy.",
    "Policy",
    "T",
)
HISTORY = _setting(
    "--history",
    int,
    "prompt.history",
    "Past (observation, action) pairs in a prompt.",
    "Policy",
    "N",
)

METHOD = _setting(
    "--method",
    str,
    "rollout.method",
    "How trees grow: chain, spark, carl, arpo, treerl, treerpo, dpepo.",
    "Method",
    "NAME",
    completion.exploration_methods,
)
LEAVES = _setting(
    "--leaves",
    int,
    "rollout.leaves",
    "Leaf budget N of a tree (chain: the group size).",
    "Method",
    "N",
)
DISTINCT = _setting(
    "--distinct",
    int,
    "rollout.distinct",
    "Sample a child again, at most N times, while its action is a sibling's; 0: never.",
    "Method",
    "N",
)
DEADLINE = _setting(
    "--deadline",
    float,
    "rollout.deadline_seconds",
    "Wall clock of one tree; the same seed then gives other bytes.",
    "Method",
    "S",
)
MINIMUM_LEAVES = _setting(
    "--minimum-leaves",
    int,
    "rollout.minimum_leaves",
    "Leaves from which a tree cut by --deadline is kept.",
    "Method",
    "N",
)
BUDGET = _setting(
    "--budget",
    str,
    "rollout.budget",
    "End when this is spent: tokens=N (generated), steps=N or leaves=N.",
    "Method",
    "UNIT=N",
    completion.fixed("tokens=", "steps=", "leaves="),
)
ITERATION = _setting(
    "--iteration",
    int,
    "rollout.iteration",
    "Take the tasks and the seed of this iteration of `run`.",
    "Method",
    "K",
)

TRACKER = _setting(
    "--tracker",
    list[str],
    "tracking.to",
    "Also log to tensorboard, wandb or trackio; repeatable.",
    "Running",
    "NAME",
    completion.trackers,
)
SEED = _setting(
    "--seed", int, "seed", "Every random draw derives from it.", "Running", "N"
)
CONCURRENCY = _setting(
    "--concurrency", int, "rollout.concurrency", "Tasks in flight.", "Running", "N"
)

RUN_ARGUMENT = Option(
    "run", (), Path, "Run directory to read; runs/latest without it.", metavar="RUN"
)
MORE_ARGUMENT = Option(
    "more",
    (),
    list[Path],
    "Further runs, learned together with RUN; the settings are RUN's.",
    metavar="RUN...",
)
PRESET_ARGUMENT = Option(
    "preset",
    (),
    str,
    "Preset by name or path; `agentcli preset list` shows them.",
    metavar="PRESET",
    values=completion.presets,
)
COPY_ARGUMENT = Option(
    "file", (), Path, "Where to write it; ./PRESET.yaml without it.", metavar="FILE"
)
SCHEMA_ARGUMENT = Option(
    "name",
    (),
    str,
    "Record by name, or settings.",
    metavar="NAME",
    values=completion.schemas,
)
FILES_ARGUMENT = Option(
    "files",
    (),
    list[Path],
    "Files (.jsonl, .jsonl.zst, .json, .yaml settings) or run directories.",
    metavar="FILES",
)
SHARDS_ARGUMENT = Option(
    "shards", (), list[Path], "The run directories of all shards.", metavar="SHARD"
)
WORLD_ARGUMENT = Option(
    "world",
    (),
    str,
    "World to look at.",
    "environment.name",
    metavar="WORLD",
    values=completion.worlds,
)

PRESET = _control(
    "--preset",
    str,
    "Preset by name or path; `agentcli preset list` shows them.",
    "NAME",
    completion.presets,
)
CONFIG = _control(
    "--config -c",
    list[Path],
    "YAML file over the preset; repeatable, the last one wins.",
    "FILE",
)
SET = _control(
    "--set",
    list[str],
    "One setting, for instance --set rollout.leaves=4; repeatable.",
    "PATH=VALUE",
)
OUT = _control(
    "--out -o", Path, "Where to write; without it a new folder under runs/.", "DIR"
)
RESUME = _control(
    "--resume",
    bool,
    "Go on with what an interrupted command left; nothing is done twice.",
)
OVERWRITE = _control("--overwrite", bool, "Replace existing output.")
DRY_RUN = _control(
    "--dry-run", bool, "Show resolved settings, inputs and counts; write nothing."
)
KIND = _control(
    "--kind",
    str,
    "What the files hold, where name and folder do not say: tree, credit, panel, ...",
    "NAME",
    completion.schemas,
)
JSON = _control("--json", bool, "JSON lines on stdout.")
QUIET = _control("--quiet -q", bool, "No progress, notes or tables.")

LAYERS = (PRESET, CONFIG, SET)
REPORTING = (DRY_RUN, JSON, QUIET)
WORLD = (ENV, DATA, SPLIT, TASKS, PANEL, WHERE, MAX_STEPS)
SAMPLING = (POLICY, MODEL, ADAPTER, BASE_URL, DEVICE, DTYPE, TEMPERATURE, HISTORY)
GROWTH = (LEAVES, DISTINCT, BUDGET, DEADLINE, MINIMUM_LEAVES)
PACE = (SEED, CONCURRENCY)
METAVARS = {int: "N", float: "X", str: "TEXT", bool: None}
"""The types that an option made from a setting may have."""


def method_options(
    methods: Sequence[str] | None = None, section: str = "rollout"
) -> tuple[Option, ...]:
    """An option for every plain setting that one of `methods` brings, made from its
    field; None: all methods.

    The docstring under the field is the help. This imports the methods.
    """
    from agentcli.exploration.registry import method_names
    from agentcli.exploration.settings import own_fields, rollout_class
    from agentcli.records.docs import field_docs

    fields: dict[str, FieldInfo] = {}
    helps: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    for method in method_names() if methods is None else methods:
        docs = field_docs(rollout_class(method))
        for field in own_fields(method):
            fields.setdefault(field.name, field)
            helps.setdefault(field.name, docs.get(field.name, ""))
            users.setdefault(field.name, []).append(method)
    options = []
    for name, field in fields.items():
        kind, choices = _typed_as(field.type)
        if kind is not None:
            suffix = f" ({', '.join(users[name])})" if methods is None else ""
            values = completion.fixed(*choices) if choices else None
            metavar = "|".join(choices) or METAVARS[kind]
            flag = f"--{name.replace('_', '-')}"
            declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
            options.append(
                _setting(
                    declared,
                    kind,
                    f"{section}.{name}",
                    helps[name] + suffix,
                    "Method",
                    metavar,
                    values,
                )
            )
    return tuple(options)


def _typed_as(kind: Any) -> tuple[type | None, tuple[str, ...]]:
    """How a setting's value is typed on a command line, and its choices; None where it
    cannot be (a section, a list).
    """
    inner = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is Literal:
        return str, tuple(map(str, inner))
    if get_origin(kind) is Annotated or (
        get_origin(kind) in (Union, UnionType) and len(inner) == 1
    ):
        return _typed_as(inner[0])
    return (kind if kind in METAVARS else None), ()


def given(options: tuple[Option, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Setting path -> value of the options that were typed. Raises UsageError for a
    --where that names no values.
    """
    found = {
        option.path: values[option.name]
        for option in options
        if option.path and values.get(option.name) is not None
    }
    if "environment.where" in found:
        found["environment.where"] = parse_where(found["environment.where"])
    return found


def refuse_empty(words: Sequence[str]) -> None:
    """Raises typer.BadParameter for a word that is empty, as a shell variable that is
    not set leaves it: as a path it is this folder.
    """
    for before, word in pairwise(words):
        if not word:
            raise typer.BadParameter(f"there is an empty word after {before}")
        if word.startswith("--") and word.find("=") == len(word) - 1:
            raise typer.BadParameter(f"{word} is given an empty value")


def refuse_swallowed(options: tuple[Option, ...], values: dict[str, Any]) -> None:
    """Raises typer.BadParameter for an option whose value is an option's name: its own
    value was left out.
    """
    names = {name for option in options for name in option.names}
    for option in options:
        value = values.get(option.name)
        for one in value if isinstance(value, list) else [value]:
            if option.takes_value and option.names and str(one) in names:
                raise typer.BadParameter(
                    f"{option.names[0]} needs a value ({option.metavar}), not {one}"
                )


def parse_where(texts: list[str]) -> dict[str, list[str]]:
    """["kind=a,b", "room=x"] or ["kind=a,b,room=x"] -> {"kind": ["a", "b"], "room":
    ["x"]}; a key given twice adds up.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key = ""
        for part in text.split(","):
            name, equals, value = part.partition("=")
            key, value = (
                (name.strip(), value.strip()) if equals else (key, part.strip())
            )
            if not key or not value:
                raise UsageError(
                    f"--where {text}: write key=value, for instance --where "
                    "kind=pick_and_place_simple,room=kitchen"
                )
            found.setdefault(key, []).append(value)
    return found
