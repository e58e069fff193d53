"""validate: checks files one by one, and whether those of a run belong together.

Files are read by the same code as in the stages. A settings file is checked as if it
were the only one. Checkpoints are not checked, nor whether a world has a panel's tasks.
Readers compare a file with the checksum that the manifest has.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.analysis.schema import kind_of, metrics_type, type_of
from agentcli.errors import DataError, UsageError
from agentcli.exploration.settings import decode
from agentcli.policies.load import count_tensors
from agentcli.records.checksums import recorded
from agentcli.records.faults import shown
from agentcli.records.files import read_json, read_numbered, read_records, sha256_file
from agentcli.records.pictures import folder_beside, pictures_of, read_picture
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.trees import read_with_credit, validate_tree
from agentcli.records.types import Episode, Manifest, Panel, StageRecord, Tree
from agentcli.registry import nearest
from agentcli.stages.panels import panel_hash, read_panel
from agentcli.stages.session import Begun

SUMMED = ("credit", "episode", "evaluation", "metrics", "begun", "optimizer")
"""Kinds of files whose checksum is in the manifest."""


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
                f"{path}: no such run directory; `agentcli rollout -o {path}` makes one"
            )
        return iter([CheckedFile(path, "run", None, problem)])
    return _check_file(path, kind_of(path, kind), kind)


def _check_file(path: Path, kind: str, option: str | None) -> Iterator[CheckedFile]:
    yield _checked(path, kind, validate, option)


def validate(path: Path, kind: str | None = None) -> int:
    """Reads a whole file, streaming; returns its number of records.

    Raises DataError "file:line: field: what is wrong" for the first fault, and for a
    file without a record; UsageError as `kind_of` does.
    """
    kind = kind_of(path, kind)
    if kind == "settings":
        _validate_settings(path)
        return 1
    if path.suffix == ".json":
        _validate_json(path, kind)
        return 1
    return _count(path, kind)


def _checked(
    path: Path,
    kind: str,
    count: Callable[..., int],
    *details: Any,
) -> CheckedFile:
    """The result of counting the records of a file, which also checks them."""
    try:
        records = count(path, *details)
        return CheckedFile(path, kind, records, None, recorded(path) is not None)
    except DataError as error:
        return CheckedFile(path, kind, None, str(error))


def _records(path: Path, kind: str) -> Iterator[Any]:
    """Every record of a file of lines. Raises DataError."""
    if kind == "metrics":
        expected = metrics_type(next(read_records(path, dict), {}))
    else:
        expected = type_of(kind)
    folder = folder_beside(path)
    sound: set[str] = set()
    for line, record in read_numbered(path, expected):
        if isinstance(record, Tree):
            validate_tree(record, f"{path}:{line}")
            for name in pictures_of(record):
                if name not in sound:
                    read_picture(folder, name)
                    sound.add(name)
        yield record


def _count(path: Path, kind: str) -> int:
    count = sum(1 for _ in _records(path, kind))
    _refuse_empty(path, count)
    return count


def _refuse_empty(path: Path, count: int) -> None:
    if count == 0:
        raise DataError(f"{path}: holds no complete record; write it again")


def _validate_json(path: Path, kind: str) -> None:
    record = read_json(path, type_of(kind))
    if isinstance(record, Tree):
        validate_tree(record, str(path))
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
    from agentcli.policies.registry import policy_names
    from agentcli.prompts.registry import dialect_names
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
    except (UsageError, DataError) as error:
        raise DataError(f"{path}: {error}") from error
    _refuse_unknown(path, "policy.kind", settings.policy.kind, policy_names())
    _refuse_unknown(path, "prompt.style", settings.prompt.style, dialect_names())


def _refuse_unknown(
    path: Path,
    key: str,
    name: str | None,
    names: Sequence[str],
) -> None:
    if name is not None and name not in names:
        hint = nearest(name, names)
        raise DataError(f"{path}: {key}: is {shown(name)!r}; {hint}")


def _check_run(folder: Path) -> Iterator[CheckedFile]:
    """Everything in a run directory, the iterations of a loop included."""
    run = RunDirectory(folder)
    empty = True
    stages: dict[str, StageRecord] = {}
    path = run.manifest_path
    if is_there(path):
        empty = False
        manifest = _checked(path, "manifest", validate, "manifest")
        if manifest.problem is None:
            stages = run.load_manifest().stages
        yield manifest
    for checked in _check_files(run, stages):
        empty = False
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


def _check_files(
    run: RunDirectory, stages: dict[str, StageRecord]
) -> Iterator[CheckedFile]:
    """Everything in a run directory but its manifest and iterations."""
    trees: Path | None = None
    with suppress(DataError):
        trees = run.existing_trees()
    if trees is not None:
        rollout = stages.get("rollout")
        checked = _checked(trees, "tree", _trees, rollout)
        yield checked
        # Credit is not compared with damaged trees.
        if checked.problem is not None:
            trees = None
    for path in sorted((run.path / "credit").glob("*.jsonl")):
        yield _checked(path, "credit", _credit, trees)
    for path in sorted((run.path / "evaluation").glob("*.jsonl")):
        evaluation = stages.get(f"evaluation/{path.stem}")
        yield _checked(path, "episode", _episodes, evaluation)
    for path in sorted((run.path / "evaluation" / "trees").glob("*.jsonl")):
        yield _checked(path, "tree", _count, "tree")
    for path in sorted((run.path / "evaluation").glob("*.json")):
        yield _checked(path, "evaluation", validate, "evaluation")
    for path in sorted((run.path / "settings").glob("*.json")):
        yield _checked(path, "begun", _begun)
    if is_there(run.optimizer):
        yield _checked(run.optimizer, "optimizer", _tensors)
    kinds = {
        run.seconds: "tree-seconds",
        run.metrics: "metrics",
        run.path / "export" / "messages.jsonl": "prompt-completion",
        run.path / "export" / "preferences.jsonl": "preference",
    }
    for path, kind in kinds.items():
        if is_there(path):
            yield _checked(path, kind, _count, kind)


def _trees(path: Path, rollout: StageRecord | None) -> int:
    """The number of trees.

    A rollout that ended must have left those of its panel, in order.
    """
    tasks = [tree.task.id for tree in _records(path, "tree")]
    _refuse_empty(path, len(tasks))
    _refuse_other_panel(path, tasks, rollout)
    return len(tasks)


def _credit(path: Path, trees: Path | None) -> int:
    """The number of records.

    Credit must belong to the trees beside it: line by line the same task, and steps
    that exist.
    """
    if trees is None:
        return _count(path, "credit")
    return sum(1 for _ in read_with_credit(trees, path))


def _begun(path: Path) -> int:
    read_json(path, Begun)
    return 1


def _tensors(path: Path) -> int:
    """The number of tensors of an optimiser's state, which is read as a whole."""
    count = count_tensors(path)
    sha256_file(path)
    return count


def _episodes(path: Path, evaluation: StageRecord | None) -> int:
    """The number of episodes.

    An evaluation that ended must have left those of its panel, in order, each once.
    """
    samples: dict[str, int] = {}
    for line, episode in read_numbered(path, Episode):
        before = samples.get(episode.task, 0)
        if evaluation is not None and episode.sample != before:
            raise DataError(
                f"{path}:{line}: sample: is {episode.sample}, task "
                f"{shown(episode.task)} has {before} before it; run the evaluation "
                "again with --resume"
            )
        samples[episode.task] = before + 1
    count = sum(samples.values())
    _refuse_empty(path, count)
    _refuse_other_panel(path, list(samples), evaluation)
    return count


def _refuse_other_panel(
    path: Path,
    tasks: Sequence[str],
    record: StageRecord | None,
) -> None:
    if record is None or record.panel is None:
        return
    walked = panel_hash(tasks)
    if walked != record.panel:
        raise DataError(
            f"{path}: its {len(tasks)} tasks are not those of panel "
            f"{shown(record.panel_name or '')} in the manifest (sha256 {walked[:12]}, "
            f"not {shown(record.panel)[:12]}); write it again with --resume"
        )
