"""The model card of a run, from its manifest and those of the runs before it.

Every number was recorded by a stage. The card says where the weights come from, how
they were trained, how they score, and which commands reproduce them.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.errors import DataError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.faults import printable
from agentcli.records.files import read_json
from agentcli.records.runs import RunDirectory
from agentcli.records.training_settings import TINY
from agentcli.records.types import StageRecord
from agentcli.stages.layers import list_presets

TRAINING = ("run", "train", "sft")
"""Stages that write a checkpoint. If a run has several, the first one here ran last."""
PAPERS = {
    "spark": "SPARK: Strategic Policy-Aware Exploration via Key-State Dynamic "
    "Branching",
    "rewardflow": "RewardFlow: Topology-Aware Reward Propagation on State Graphs",
    "carl": "CARL: focusing on critical actions",
    "dpepo": "DPEPO: one policy acting in parallel copies of the environment",
}
"""Titles of the papers, by method."""
LIBRARIES = ("agentcli", "python", "torch", "transformers", "trl", "peft")
"""Packages whose versions the card lists."""
MACHINE_PATH = re.compile(r"(^|(?<==))/(?:[^/\s]+/)*")
"""The folders of a path that exists only on one machine."""


class Training(NamedTuple):
    """One training that led to the weights."""

    run: RunDirectory
    stage: str
    record: StageRecord

    @property
    def start(self) -> str:
        """The model that it started from."""
        section = "sft" if self.stage == "sft" else "policy"
        return str(self.record.settings[section]["model"])


def model_card(run: Path, repo: str | None = None, folder: Path | None = None) -> str:
    """The card as Markdown, with the metadata that the hub reads.

    `repo` is the model's name on the hub, if it has one, and `folder` contains its
    files, if they are not in RUN/checkpoint. Raises DataError if no training has
    finished in the run.
    """
    trainings = lineage(run)
    name = repo or run.resolve().name
    parts = (
        _metadata(folder or RunDirectory(run).checkpoint, trainings),
        f"# {name}",
        _summary(trainings[0]),
        _facts(trainings),
        _success(run),
        _recipe(run, trainings),
        _use(repo) if repo else "",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def lineage(run: Path) -> list[Training]:
    """The trainings that led to the weights of a run, newest first.

    It ends at a model that was not made by a run on this machine. Raises DataError if
    the run itself was not trained.
    """
    trainings: list[Training] = []
    visited: set[Path] = set()
    place: Path | None = run
    while place is not None and place.resolve() not in visited:
        visited.add(place.resolve())
        training = _training(RunDirectory(place))
        if training is None:
            break
        trainings.append(training)
        model = Path(training.start)
        place = model.parent if model.name == "checkpoint" else None
    if not trainings:
        raise DataError(
            f"{run / 'manifest.json'}: no training ended here; train a model with: "
            f"agentcli train {run}"
        )
    return trainings


def base_model(trainings: Sequence[Training]) -> str | None:
    """The hub id of the initial model; None if it is not on the hub."""
    start = trainings[-1].start
    is_path = Path(start).exists() or start.startswith((".", "/", "~"))
    if start == TINY or is_path or start.count("/") > 1:
        return None
    return start


def _training(run: RunDirectory) -> Training | None:
    stages = run.load_manifest().stages
    for name in TRAINING:
        if name in stages:
            return Training(run, name, stages[name])
    return None


def _metadata(folder: Path, trainings: Sequence[Training]) -> str:
    from yaml import safe_dump

    from agentcli.policies.load import is_adapter

    settings = trainings[0].record.settings
    values: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["agentcli", settings["environment"]["name"], *_methods(trainings[0])],
    }
    if is_adapter(str(folder)):
        values["library_name"] = "peft"
    base = base_model(trainings)
    if base is not None:
        values["base_model"] = base
    return f"---\n{safe_dump(values, sort_keys=False)}---"


def _methods(training: Training) -> list[str]:
    """How trees grew and credit was assigned; empty for imitation."""
    settings = training.record.settings
    if training.stage == "sft":
        return []
    return list(dict.fromkeys([settings["rollout"]["method"], _credit(training)]))


def _credit(training: Training) -> str:
    """The credit method from the settings, or from the credit file that was read."""
    for path in training.record.inputs:
        if Path(path).parent.name == "credit":
            return Path(path).name.partition(".")[0]
    return str(training.record.settings["credit"].get("method"))


def _summary(training: Training) -> str:
    world = training.record.settings["environment"]["name"]
    how = "imitation of demonstrations"
    if training.stage != "sft":
        how = f"reinforcement learning ({' and '.join(_methods(training))})"
    return (
        f"A language-model agent for {world}, trained by {how} with agentcli. This "
        "card was made from the manifests of the run."
    )


def _facts(trainings: Sequence[Training]) -> str:
    last = trainings[0]
    settings = last.record.settings
    start = trainings[-1].start
    facts = {
        "base model": "made from scratch" if start == TINY else _public(start),
        "trained by": ", then ".join(one.stage for one in reversed(trainings)),
        "world": f"{settings['environment']['name']}, {_split(settings)}",
        "seed": str(last.record.seed),
        "training seconds": f"{sum(one.record.seconds['wall'] for one in trainings):,.0f}",
    }
    if last.stage != "sft":
        facts["trees"] = settings["rollout"]["method"]
        facts["credit"] = _credit(last)
        facts["iterations"] = str(last.record.counts.get("iterations", 1))
    papers = [PAPERS[name] for name in _methods(last) if name in PAPERS]
    if papers:
        facts["paper"] = "; ".join(papers)
    for path in _presets(trainings):
        purpose = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        facts[f"preset `{path.stem}`"] = purpose
    return _table(("", ""), facts.items())


def _split(settings: dict[str, Any]) -> str:
    split = settings["environment"]["split"]
    return f"split {split}" if split else "the split it is trained on"


def _presets(trainings: Sequence[Training]) -> list[Path]:
    """The presets used in the commands."""
    words = {word for one in trainings for word in one.record.command}
    return [path for path in list_presets() if path.stem in words]


def _success(run: Path) -> str:
    """The evaluations in the run, as a table."""
    rows = []
    for file in sorted((run / "evaluation").glob("*.json")):
        summary = read_json(file, EvaluationSummary)
        rate = summary.success
        rows.append(
            (
                summary.label,
                f"{summary.panel.name}, {summary.panel.tasks} tasks",
                str(summary.episodes),
                f"{summary.temperature:g}",
                f"{100 * rate.rate:.1f}",
                f"{100 * rate.low:.1f} to {100 * rate.high:.1f} ({rate.interval})",
                _public(summary.model or summary.policy),
            )
        )
    if not rows:
        return "## Success\n\nNothing was evaluated."
    header = ("evaluation", "panel", "episodes", "temperature", "success %")
    table = _table((*header, "95 % interval", "model"), rows)
    return f"## Success\n\n{table}"


def _recipe(run: Path, trainings: Sequence[Training]) -> str:
    commands = "\n".join(_commands(run, trainings))
    record = trainings[0].record
    versions = [
        f"{name} {record.versions[name]}"
        for name in LIBRARIES
        if name in record.versions
    ]
    commit = f" Commit {record.git_commit}." if record.git_commit else ""
    return (
        f"## The same again\n\n{_code(commands)}\n\nVersions: {', '.join(versions)}."
        f"{commit}"
    )


def _use(repo: str) -> str:
    command = f"agentcli eval --model {repo}"
    return f"## Use\n\n{_code(command)}"


def _commands(run: Path, trainings: Sequence[Training]) -> list[str]:
    """Every command that led to the weights and their evaluations, in order."""
    begun: dict[str, str] = {}
    for training in trainings:
        inputs = map(Path, training.record.inputs)
        runs = {path.parent for path in inputs if path.name.startswith("trees.jsonl")}
        for place in {*runs, training.run.path}:
            for name, record in RunDirectory(place).load_manifest().stages.items():
                if place == run or not name.startswith("evaluation/"):
                    begun.setdefault(_command(record), record.started)
    return sorted(begun, key=lambda command: begun[command])


def _command(record: StageRecord) -> str:
    return printable(shlex.join(_public(word) for word in record.command))


def _public(text: str) -> str:
    """A word of a command, without the folders of this machine."""
    return MACHINE_PATH.sub("", text)


def _code(text: str) -> str:
    return f"```sh\n{text}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in rows:
        cells = [printable(cell).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
