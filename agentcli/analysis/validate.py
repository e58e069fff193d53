"""validate: whether files hold what they must, one by one, and whether those of a run directory belong together.

Everything is read with what the stages read with. A settings file is checked as if it were given alone. What is not checked:
checkpoints, and whether a world offers a panel's tasks.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.analysis.schema import hint, kind_of, metrics_type, type_of
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import read_json, read_numbered, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_credit, validate_tree
from agentcli.records.types import Credit, Episode, Manifest, Panel, StageRecord, Task, Tree
from agentcli.stages.panels import make_panel, read_panel


class Finding(NamedTuple):
    """What became of one file."""

    path: Path
    kind: str
    records: int | None
    """None where there is a problem."""
    problem: str | None
    """The first fault: "file:line: field: what is wrong"."""


def check(path: Path, kind: str | None = None) -> Iterator[Finding]:
    """One finding for a file, one for every file that the stages left in a run directory; files are read when it is walked.

    Raises UsageError at once, as `kind_of` does, and for a directory with a kind.
    """
    if not path.suffix and not path.exists():
        return iter(
            [Finding(path, "run", None, f"{path}: no such run directory; `agentcli rollout -o {path}` makes one")]
        )
    if not path.is_dir():
        found = kind_of(path, kind)
        return (_finding(path, found, partial(validate, path, kind)) for _ in range(1))
    if kind is not None:
        raise UsageError(f"{path}: is a directory, --kind says what a file holds; leave it out to check a whole run")
    return _check_run(path)


def validate(path: Path, kind: str | None = None) -> int:
    """Read a whole file, streaming; returns its number of records.

    Raises DataError "file:line: field: what is wrong" for the first fault, and for a file without a record; UsageError
    as `kind_of` does.
    """
    kind = kind_of(path, kind)
    if kind == "settings":
        return _validate_settings(path)
    if path.suffix == ".json":
        _validate_json(path, kind)
        return 1
    return _count(path, kind)


def _records(path: Path, kind: str) -> Iterator[Any]:
    expected = metrics_type(next(read_records(path, dict), {})) if kind == "metrics" else type_of(kind)
    for line, record in read_numbered(path, expected):
        if isinstance(record, Tree):
            validate_tree(record, f"{path}:{line}")
        yield record


def _count(path: Path, kind: str) -> int:
    return _refuse_empty(path, sum(1 for _ in _records(path, kind)))


def _refuse_empty(path: Path, count: int) -> int:
    if count == 0:
        raise DataError(f"{path}: holds no complete record; write it again")
    return count


def _validate_json(path: Path, kind: str) -> None:
    record = read_json(path, type_of(kind))
    if isinstance(record, Tree):
        validate_tree(record, str(path))
    if isinstance(record, Panel):
        read_panel(path, record.world)
    if isinstance(record, Manifest):
        for name, stage in record.stages.items():
            _validate_recorded(path, name, stage)


def _validate_recorded(path: Path, name: str, stage: StageRecord) -> None:
    try:
        msgspec.convert(stage.settings, Settings)
    except (msgspec.ValidationError, RecursionError) as error:
        what = str(error).replace("`$", f"`$.stages.{name}.settings")
        raise DataError(f"{path}: {shown(what)}; these settings cannot be inherited") from error


def _validate_settings(path: Path) -> int:
    from agentcli.credit.registry import make as make_credit
    from agentcli.environments.registry import make_world
    from agentcli.exploration.registry import make as make_exploration
    from agentcli.policies.registry import policy_names
    from agentcli.prompts.render import STYLES
    from agentcli.stages.layers import read_yaml, resolve

    try:
        settings = resolve(None, [path], {}, [], {})
    except UsageError as error:
        raise DataError(str(error)) from error
    try:
        make_credit(settings.credit)
        make_exploration(settings.rollout.method)
        if "environment" in read_yaml(path):
            make_world(settings.environment)
    except (UsageError, DataError) as error:
        raise DataError(f"{path}: {error}") from error
    for field, name, names in (
        ("policy.kind", settings.policy.kind, policy_names()),
        ("prompt.style", settings.prompt.style, list(STYLES)),
    ):
        if name not in names:
            raise DataError(f"{path}: {field}: is {shown(name)!r}; {hint(name, names)}")
    return 1


def _finding(path: Path, kind: str, count: Callable[[], int]) -> Finding:
    try:
        return Finding(path, kind, count(), None)
    except DataError as error:
        return Finding(path, kind, None, str(error))


def _check_run(folder: Path) -> Iterator[Finding]:
    """Everything in a run directory, those of a loop's iterations included."""
    run, found = RunDirectory(folder), False
    stages: dict[str, StageRecord] = {}
    if run.manifest_path.exists():
        found = True
        finding = _finding(run.manifest_path, "manifest", partial(validate, run.manifest_path, "manifest"))
        stages = run.load_manifest().stages if finding.problem is None else {}
        yield finding
    for finding in _check_files(run, stages):
        found = True
        yield finding
    for iteration in sorted(folder.glob("iteration_*")):
        found = True
        yield from _check_run(iteration)
    if not found:
        yield Finding(
            folder, "run", None, f"{folder}: holds nothing that a run leaves: manifest.json, trees.jsonl, ..."
        )


def _check_files(run: RunDirectory, stages: dict[str, StageRecord]) -> Iterator[Finding]:
    trees = next((path for path in (run.trees, run.trees.with_suffix(".jsonl.zst")) if path.exists()), None)
    if trees is not None:
        finding = _finding(trees, "tree", partial(_trees, trees, stages.get("rollout")))
        yield finding
        trees = trees if finding.problem is None else None
    for path in _record_files(run.path / "credit"):
        yield _finding(path, "credit", partial(_credit, path, trees))
    for path in _record_files(run.path / "evaluation"):
        record = stages.get(f"evaluation/{path.name.partition('.jsonl')[0]}")
        yield _finding(path, "episode", partial(_episodes, path, record))
    for path in sorted((run.path / "evaluation").glob("*.json")):
        yield _finding(path, "evaluation", partial(validate, path, "evaluation"))
    for path, kind in ((run.seconds, "tree-seconds"), (run.metrics, "metrics")):
        if path.exists():
            yield _finding(path, kind, partial(_count, path, kind))


def _record_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl*") if path.name.endswith((".jsonl", ".jsonl.zst")))


def _trees(path: Path, rollout: StageRecord | None) -> int:
    """Trees, and that a rollout which ended left those of its panel, in order."""
    tasks = [tree.task for tree in _records(path, "tree")]
    _refuse_empty(path, len(tasks))
    _refuse_other_panel(path, tasks, rollout)
    return len(tasks)


def _credit(path: Path, trees: Path | None) -> int:
    """Credit, and that it belongs to the trees beside it: line by line the same task, and steps that exist."""
    count = _count(path, "credit")
    if trees is None:
        return count
    pairs = zip_longest(read_numbered(path, Credit), read_records(trees, Tree))
    for number, (given, tree) in enumerate(pairs, 1):
        if given is None or tree is None:
            short, long = (path, trees) if given is None else (trees, path)
            raise DataError(f"{short}: ends after {number - 1} records, {long} goes on; run assign-credit again")
        validate_credit(given[1], tree, f"{path}:{given[0]}")
    return count


def _episodes(path: Path, evaluation: StageRecord | None) -> int:
    """Episodes, and that an evaluation which ended left those of its panel, in order, each once."""
    tasks: dict[str, Task] = {}
    samples: dict[str, int] = {}
    count = 0
    for line, episode in read_numbered(path, Episode):
        count += 1
        if evaluation is not None and episode.sample != samples.get(episode.task, 0):
            raise DataError(
                f"{path}:{line}: sample: is {episode.sample}, task {shown(episode.task)} has "
                f"{samples.get(episode.task, 0)} before it; run the evaluation again with --resume"
            )
        samples[episode.task] = samples.get(episode.task, 0) + 1
        tasks.setdefault(episode.task, Task(id=episode.task, world="", split="", kind=episode.kind))
    _refuse_empty(path, count)
    _refuse_other_panel(path, list(tasks.values()), evaluation)
    return count


def _refuse_other_panel(path: Path, tasks: list[Task], record: StageRecord | None) -> None:
    if record is None or record.panel is None:
        return
    found = make_panel("", "", tasks).sha256
    if found != record.panel:
        raise DataError(
            f"{path}: its {len(tasks)} tasks are not those of panel {shown(record.panel_name or '')} in the manifest "
            f"(sha256 {found[:12]}, not {shown(record.panel)[:12]}); write it again with --resume"
        )
