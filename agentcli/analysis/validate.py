"""validate: reads every file as the stages do, and says the first fault of each.

What a stage left must be of its panel: a file that lost a line is readable, and wrong. A
settings file is checked as if it were the only one. Checkpoints are not checked, nor
whether a world has a panel's tasks. Readers compare a file with the checksum that the
manifest has.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.analysis import schema
from agentcli.errors import DataError, UsageError, word_of
from agentcli.exploration.settings import decode
from agentcli.policies.load import count_tensors
from agentcli.records.checksums import recorded
from agentcli.records.faults import shown
from agentcli.records.files import read_json, read_numbered, read_records, sha256_file
from agentcli.records.pictures import PictureCheck, folder_beside, pictures_of
from agentcli.records.regular import is_there
from agentcli.records.runs import loop_folders
from agentcli.records.trees import leaves, read_with_credit, validate_tree
from agentcli.records.types import Episode, Manifest, Panel, StageRecord, Tree
from agentcli.stages.panels import panel_hash, read_panel
from agentcli.stages.session import Begun
from agentcli.stages.tally import Tally

SUMMED = ("credit", "episode", "evaluation", "metrics", "begun", "optimizer")
"""Kinds of files whose checksum is in the manifest."""
PLACES = {
    # First of all, since it says what the others must hold.
    "manifest.json": "manifest",
    **{
        kind.place: kind.name
        for kind in schema.KINDS
        if kind.place not in (None, schema.METRICS_PLACE)
    },
    schema.METRICS_PLACE: "metrics",
    "evaluation/trees/*.jsonl": "tree",
    "settings/*.json": "begun",
    "optimizer.safetensors": "optimizer",
}
"""The files of a run directory, and what they hold."""


class CheckedFile(NamedTuple):
    """The result for one file."""

    path: Path
    kind: str
    records: int | None
    """None where there is a problem."""
    problem: str | None
    """The first fault: "file:line: field: what is wrong"."""
    compared: bool = False
    """Whether the manifest has its checksum."""

    @property
    def lacks_checksum(self) -> bool:
        """Whether a changed number would go unnoticed, though stages write checksums."""
        return self.problem is None and self.kind in SUMMED and not self.compared


def check(path: Path, kind: str | None = None) -> Iterator[CheckedFile]:
    """Checks a file, or every file that the stages left in a run directory.

    Files are read while the result is walked. Raises UsageError at once, as `kind_of`
    does, and for a directory with a kind.
    """
    if path.is_dir():
        if kind is not None:
            raise UsageError(
                f"{path}: is a directory, --kind says what a file holds; leave it out "
                "to check a whole run"
            )
        return _check_run(path)
    if not is_there(path):
        problem = f"{path}: cannot be read ({os.strerror(errno.ENOENT)})"
        if not path.suffix:
            problem = (
                f"{path}: no such run directory; `agentcli rollout -o {word_of(path)}` makes "
                "one"
            )
        return iter([CheckedFile(path, "run", None, problem)])
    # A map reads nothing yet: the kind alone is looked at now.
    return map(_checked, [path], [schema.kind_of(path, kind)])


def _check_run(folder: Path) -> Iterator[CheckedFile]:
    """Everything in a run directory, the iterations of a loop included."""
    empty = True
    trees: Path | None = None
    stages: dict[str, StageRecord] = {}
    for place, kind in PLACES.items():
        one = folder / place
        files = sorted(folder.glob(place)) if "*" in place else [one]
        for path in filter(is_there, files):
            empty = False
            checked = _checked(path, kind, trees, stages.get(_writer(place, path)))
            # Nothing is compared with a damaged file.
            if checked.problem is None and place == "trees.jsonl":
                trees = path
            if checked.problem is None and kind == "manifest":
                stages = read_json(path, Manifest).stages
            yield checked
    for iteration in loop_folders(folder):
        empty = False
        yield from _check_run(iteration)
    if empty:
        problem = (
            f"{folder}: holds nothing that a run leaves: manifest.json, trees.jsonl, "
            "..."
        )
        yield CheckedFile(folder, "run", None, problem)


def _writer(place: str, path: Path) -> str:
    """The stage whose panel the records of a file must be; "" if no panel holds."""
    writers = {
        "trees.jsonl": "rollout",
        "evaluation/*.jsonl": f"evaluation/{path.stem}",
    }
    return writers.get(place, "")


def _checked(
    path: Path,
    kind: str,
    trees: Path | None = None,
    stage: StageRecord | None = None,
) -> CheckedFile:
    """The result of reading a file.

    `trees` are those that its credit belongs to; `stage` is the one that wrote it, if
    that has ended.
    """
    try:
        if kind == "credit" and trees is not None:
            records = sum(1 for _ in read_with_credit(trees, path))
        elif stage is not None:
            records = _of_panel(path, kind, stage)
        else:
            records = _count(path, kind)
        return CheckedFile(path, kind, records, None, recorded(path) is not None)
    except DataError as error:
        return CheckedFile(path, kind, None, str(error))


def _count(path: Path, kind: str) -> int:
    """The number of records; all are read. Raises DataError."""
    if kind == "optimizer":
        count = count_tensors(path)
        sha256_file(path)
        return count
    if kind == "settings":
        _validate_settings(path)
        return 1
    if path.suffix == ".json":
        _validate_json(path, kind)
        return 1
    count = sum(1 for _ in _records(path, kind))
    # Where nothing was learnt from, a training has no update.
    if kind != "metrics":
        _refuse_empty(path, count)
    return count


def _refuse_empty(path: Path, count: int) -> None:
    if count == 0:
        raise DataError(f"{path}: holds no complete record; write it again")


def _of_panel(path: Path, kind: str, stage: StageRecord) -> int:
    """The number of trees or episodes: those of the stage's panel, in order.

    Of a task there are all samples, each once. Trees are as many, and have ended, as
    the stage counted.
    """
    samples = Counter[str]()
    tasks = []
    tally = Tally()
    for line, record in _records(path, kind):
        task = record.task.id if isinstance(record, Tree) else record.task
        if isinstance(record, Tree):
            tally.add(record)
        number = record.sample if isinstance(record, Episode) else 0
        if isinstance(record, Episode) and number != samples[task]:
            raise DataError(
                f"{path}:{line}: sample: is {number}, task {shown(task)} has "
                f"{samples[task]} before it; run the evaluation again with --resume"
            )
        samples[task] += 1
        if number == 0:
            tasks.append(task)
    _refuse_empty(path, len(tasks))
    walked = panel_hash(tasks)
    if stage.panel not in (None, walked):
        raise DataError(
            f"{path}: its {len(tasks)} tasks are not those of panel "
            f"{shown(stage.panel_name or '')} in the manifest (sha256 {walked[:12]}, "
            f"not {shown(stage.panel or '')[:12]}); write it again with --resume"
        )
    for name, count in tally.counts.items() if kind == "tree" else ():
        if stage.counts.get(name, count) != count:
            raise DataError(
                f"{path}: holds {count} {name}, not the {stage.counts[name]} of "
                "manifest.json; one of the two was changed"
            )
    return samples.total()


def _records(path: Path, kind: str) -> Iterator[tuple[int, Any]]:
    """Every record of a file of lines, with its line. Raises DataError."""
    if kind == "metrics":
        expected = schema.metrics_type(next(read_records(path, dict), {}))
    else:
        expected = schema.type_of(kind)
    pictures = PictureCheck(folder_beside(path))
    for line, record in read_numbered(path, expected):
        if isinstance(record, Tree):
            _validate_tree(record, f"{path}:{line}")
            pictures.refuse_damaged(pictures_of(record))
        yield line, record


def _validate_tree(tree: Tree, place: str) -> None:
    """Raises DataError too for a tree without steps, or that lost some of its leaves.

    A ledger without leaves was not kept.
    """
    validate_tree(tree, place)
    if not tree.steps:
        raise DataError(f"{place}: steps: there are none; roll its task out again")
    held, counted = len(leaves(tree)), tree.ledger.leaves
    if counted not in (0, held):
        raise DataError(f"{place}: ledger.leaves: is {counted}, the steps have {held}")


def _validate_json(path: Path, kind: str) -> None:
    record = read_json(path, Begun if kind == "begun" else schema.type_of(kind))
    if isinstance(record, Tree):
        _validate_tree(record, str(path))
    elif isinstance(record, Panel):
        read_panel(path, record.world)
    elif isinstance(record, Manifest):
        for name, stage in record.stages.items():
            _validate_recorded(path, name, stage)


def _validate_recorded(path: Path, name: str, stage: StageRecord) -> None:
    """Check the settings of a stage: the next stage inherits them."""
    try:
        decode(stage.settings)
    except UsageError as error:
        raise DataError(
            f"{path}: stages.{name}.settings: {error}; these settings cannot be "
            "inherited"
        ) from error
    except (msgspec.ValidationError, RecursionError) as error:
        fault = shown(str(error).replace("`$", f"`$.stages.{name}.settings"))
        raise DataError(
            f"{path}: {fault}; these settings cannot be inherited"
        ) from error


def _validate_settings(path: Path) -> None:
    from agentcli.credit.registry import make as make_credit
    from agentcli.environments.registry import make_world
    from agentcli.exploration.registry import make as make_exploration
    from agentcli.policies.registry import REGISTRY as POLICIES
    from agentcli.prompts.registry import REGISTRY as DIALECTS
    from agentcli.stages.layers import resolve
    from agentcli.stages.yaml_files import read_yaml

    try:
        settings = resolve(files=[path])
    except UsageError as error:
        raise DataError(str(error)) from error
    try:
        make_credit(settings.credit)
        make_exploration(settings.rollout.method)
        # The default world may lack its data here; only a world that the file names is
        # made.
        if "environment" in read_yaml(path):
            make_world(settings.environment)
        POLICIES.place(settings.policy.kind)
        if settings.prompt.style is not None:
            DIALECTS.place(settings.prompt.style)
    except (UsageError, DataError) as error:
        raise DataError(f"{path}: {error}") from error
