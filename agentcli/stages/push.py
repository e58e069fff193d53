"""push: uploads a trained model and its card to the Hugging Face hub in one commit.

The files are those of the checkpoint; the card is generated from the manifests: every
number was recorded by a stage, and model_card.md says how the card is laid out. The
hub's address and the token are those of huggingface_hub (HF_ENDPOINT, HF_TOKEN or `hf
auth login`). The token is never printed.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.errors import AgentCliError, DataError, MissingError, UsageError, word_of
from agentcli.evaluation.record import EvaluationSummary
from agentcli.policies.load import (
    ADAPTER,
    CONFIG,
    adapter_base,
    check_weights,
    first_line,
    is_adapter,
)
from agentcli.records.faults import printable
from agentcli.records.files import read_json
from agentcli.records.regular import is_there, read_regular
from agentcli.records.runs import RunDirectory
from agentcli.records.training_settings import TINY
from agentcli.records.types import IMPORTED, StageRecord
from agentcli.stages.layers import list_presets, purpose_of, same_files
from agentcli.training.objectives import make_objective

CARD = "README.md"
REFUSED = (401, 403)
"""The hub's status codes for a token without write access."""


@dataclass(frozen=True, kw_only=True)
class PushPlan:
    """A model that is ready to upload."""

    repo: str
    folder: Path
    """The folder of its files."""
    card: str
    private: bool

    @property
    def files(self) -> list[Path]:
        """The files of the model. The new card replaces an existing one."""
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path for path in files if path.relative_to(self.folder) != Path(CARD)]

    @property
    def names(self) -> list[str]:
        """The names of the files on the hub."""
        names = [path.relative_to(self.folder).as_posix() for path in self.files]
        return [CARD, *names]

    def counts(self) -> dict[str, int]:
        """The amount to upload."""
        sizes = sum(path.stat().st_size for path in self.files)
        return {"files": len(self.names), "bytes": sizes + len(self.card.encode())}


def plan(
    run: Path,
    repo: str,
    *,
    folder: Path | None = None,
    card: Path | None = None,
    private: bool = False,
) -> PushPlan:
    """Plans to upload the model of `run`, or the one in `folder`, to `repo`.

    `card` is a file to use instead of the generated card. Raises UsageError for an
    impossible name, and for an adapter whose base exists only on this machine;
    DataError if there is no model or no training has finished.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(
            f"{repo}: is no name on the hub; write USER/NAME, for instance me/agent"
        ) from error
    folder = folder or RunDirectory(run).checkpoint
    if not folder.is_dir():
        raise DataError(
            f"{folder}: no such directory; train a model with: agentcli train {word_of(run)}"
        )
    # Everything below it is uploaded: it must be a model's.
    if not any(is_there(folder / name) for name in (CONFIG, ADAPTER)):
        raise DataError(f"{folder}: holds no {CONFIG}; name the folder of a model")
    check_weights(str(folder))
    if is_adapter(str(folder)):
        _refuse_local_base(folder, run, repo)
    text = model_card(run, repo, folder) if card is None else _read_card(card)
    return PushPlan(repo=repo, folder=folder, card=text, private=private)


def _refuse_local_base(folder: Path, run: Path, repo: str) -> None:
    base = str(adapter_base(str(folder)))
    if Path(base).is_absolute() or Path(base).exists():
        raise UsageError(
            f"{folder / ADAPTER}: base_model_name_or_path: {base} is a folder of this "
            f"machine; merge it with: agentcli export {word_of(run)} --to model && "
            f"agentcli push {word_of(run)} {repo} --folder "
            f"{word_of(run / 'export/model')}"
        )


def _read_card(card: Path) -> str:
    try:
        return read_regular(card).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{card}: cannot be read as a card ({error})") from error


def perform(plan: PushPlan, *, bars: bool = False) -> str:
    """Creates the repository if needed, commits all files and returns its address.

    `bars` shows the hub's own progress. Raises MissingError without a token with write
    access, and AgentCliError if the hub cannot be reached or refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import disable_progress_bars

    token = get_token()
    if token is None:
        raise MissingError(
            "no token for the hub; log in with `hf auth login`, or set HF_TOKEN"
        )
    if not bars:
        disable_progress_bars()
    api = HfApi(token=token)
    # In one commit, so that nobody downloads half of a model or another's card.
    operations = [CommitOperationAdd(CARD, plan.card.encode())]
    for name, path in zip(plan.names[1:], plan.files, strict=True):
        operations.append(CommitOperationAdd(name, path))
    try:
        place = api.create_repo(plan.repo, private=plan.private, exist_ok=True)
        # Not plan.repo: the hub puts the user's name before a name without one.
        api.create_commit(
            place.repo_id, operations, commit_message="Upload by agentcli push"
        )
    except (HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            raise MissingError(
                f"{plan.repo}: the hub refuses this token ({status}); log in as one "
                "who may write there: hf auth login"
            ) from error
        # The client quotes the request's headers in some of its errors.
        reason = first_line(error).replace(token, "***")
        raise AgentCliError(
            f"{plan.repo}: was not uploaded ({reason}); type the same again"
        ) from error
    return str(place)


LAYOUT = Path(__file__).with_name("model_card.md")
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
MACHINE_PATH = re.compile(
    r"""(^|(?<=[=\s"'\[{(,:]))/(?![/\s]|$)"""
    r"""(?:(?![^/\s]+/(?:checkpoint|best)\b)[^/\s"',\[\]{}()]+/)*"""
)
"""The folders of a path that exists only on one machine, without a model's own run."""


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
    from huggingface_hub import ModelCardData
    from jinja2 import Environment

    from agentcli.policies.load import is_adapter

    trainings = lineage(run)
    last = trainings[0]
    world = _public(last.record.settings["environment"]["name"])
    methods = _methods(last)
    checkpoint = folder or RunDirectory(run).checkpoint
    # ModelCard.from_template takes no filter, and a template without one would let a
    # name with a bar or an escape sequence break the table or the terminal.
    environment = Environment()
    environment.filters["cell"] = _cell
    old = RunDirectory(run).outdated()
    files = sorted((run / "evaluation").glob("*.json"))
    evaluations = [file for file in files if file.stem not in old]
    versions = last.record.versions
    card = environment.from_string(LAYOUT.read_text(encoding="utf-8")).render(
        card_data=ModelCardData(
            base_model=base_model(trainings),
            library_name="peft" if is_adapter(str(checkpoint)) else "transformers",
            pipeline_tag="text-generation",
            tags=["agentcli", world, *methods],
        ),
        name=repo or run.resolve().name,
        repo=repo,
        world=world,
        how=f"reinforcement learning ({' and '.join(methods)})"
        if methods
        else "imitation of demonstrations",
        facts=_facts(trainings),
        evaluations=[read_json(file, EvaluationSummary) for file in evaluations],
        commands=_commands(run, trainings),
        world_words=_world_words(run, trainings),
        versions=[f"{one} {versions[one]}" for one in LIBRARIES if one in versions],
        commit=last.record.git_commit,
    )
    return f"{card}\n"


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
        run_of = RunDirectory(place)
        training = _training(run_of)
        if training is None:
            break
        trainings.append(training)
        model = Path(training.start)
        is_of_run = model.name in (run_of.checkpoint.name, run_of.best.name)
        place = model.parent if is_of_run else None
    if not trainings:
        raise DataError(
            f"{run / 'manifest.json'}: no training ended here; train a model with: "
            f"agentcli train {word_of(run)}"
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


def _methods(training: Training) -> list[str]:
    """How trees grew and credit was assigned; empty for imitation."""
    if training.stage == "sft":
        return []
    settings = training.record.settings
    credit = str(settings["credit"].get("method"))
    objective = settings["train"]["objective"]
    if "credit" in make_objective(objective).unread:
        credit = objective
    for path in training.record.inputs:
        # A credit file that was read says more than the settings of the run.
        if Path(path).parent.name == "credit":
            credit = Path(path).name.partition(".")[0]
    methods = (settings["rollout"]["method"], credit)
    # A file of the user's own is named with its folders.
    return list(dict.fromkeys(map(_public, methods)))


def _facts(trainings: Sequence[Training]) -> dict[str, str]:
    """What the table at the top says, by title."""
    last = trainings[0]
    start = trainings[-1].start
    environment = last.record.settings["environment"]
    seconds = sum(one.record.seconds["wall"] for one in trainings)
    facts = {
        "base model": "made from scratch" if start == TINY else start,
        "trained by": ", then ".join(one.stage for one in reversed(trainings)),
        "split": environment["split"] or "the one of the world for training",
        "seed": str(last.record.seed),
        "training seconds": f"{seconds:,.0f}",
    }
    if last.stage != "sft":
        facts["iterations"] = str(last.record.counts.get("iterations", 1))
    papers = [PAPERS[name] for name in _methods(last) if name in PAPERS]
    if papers:
        facts["paper"] = "; ".join(papers)
    words = {word for one in trainings for word in one.record.command}
    for path in list_presets():
        if path.stem in words:
            facts[f"preset `{path.stem}`"] = purpose_of(path)
    return facts


def _commands(run: Path, trainings: Sequence[Training]) -> list[str]:
    """Every command that led to the weights and their evaluations, in order."""
    records = _records(run, trainings)
    return list(dict.fromkeys(_public_words(record.command) for record in records))


def _records(run: Path, trainings: Sequence[Training]) -> list[StageRecord]:
    """The stages that led to the weights and their evaluations, in order."""
    records = []
    for training in trainings:
        inputs = map(Path, training.record.inputs)
        runs = {path.parent for path in inputs if path.name.startswith("trees.jsonl")}
        for place in {*runs, training.run.path}:
            for name, record in RunDirectory(place).load_manifest().stages.items():
                # Evaluations of earlier runs say nothing of these weights.
                if place == run or not name.startswith("evaluation/"):
                    records.append(record)
    return sorted(records, key=lambda record: record.started)


def _world_words(run: Path, trainings: Sequence[Training]) -> str:
    """The words that choose the world and the form of the prompts of the training."""
    last = trainings[0].record.settings
    world, style = last["environment"]["name"], last["prompt"]["style"]
    # A later command inherits them from the one that named a preset.
    for record in reversed(_records(run, trainings)):
        files, there = same_files(record.layers), record.settings
        is_same = (there["environment"]["name"], there["prompt"]["style"]) == (
            world,
            style,
        )
        if is_same and "--preset" in files:
            return _public_words(files[:2])
    if world == IMPORTED:
        return ""
    words = ["--env", world]
    words += ["--set", f"prompt.style={style}"] if style else []
    return _public_words(words)


def _public_words(words: Iterable[str]) -> str:
    """A command line, without the folders of this machine."""
    return printable(shlex.join(_public(word) for word in words))


def _public(text: str) -> str:
    """A word of a command, without the folders of this machine."""
    return MACHINE_PATH.sub("", text)


def _cell(value: Any) -> str:
    """A value as it stands in a table of Markdown."""
    return printable(_public(str(value))).replace("|", "\\|")
