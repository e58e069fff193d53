"""merge: joins the shards of a rollout or an evaluation into one run.

The result is the run that the unsharded command would have written. Shard I of N plays
every N-th task of a panel with the seeds that the tasks have in the full panel, so the
records of all shards, sorted in panel order, are identical to it byte for byte. A
merged run can be resumed like an unsharded one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentcli.errors import DataError, UsageError, word_of
from agentcli.evaluation.record import EvaluationSummary
from agentcli.policies.load import is_adapter
from agentcli.records.files import read_json, read_records
from agentcli.records.pictures import copy_pictures
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.shards import Shard, ShardExtent, WholePanel
from agentcli.records.trees import read_trees
from agentcli.records.types import Episode, StageRecord, Task
from agentcli.stages import evaluate, rollout
from agentcli.stages.layers import resolve
from agentcli.stages.panels import interleaved, make_panel, panel_hash
from agentcli.stages.plan import (
    StagePlan,
    determining,
    first_difference,
    with_changes,
)
from agentcli.stages.resolve import find_run
from agentcli.stages.sampling import SECTIONS
from agentcli.stages.session import Session, other_inputs
from agentcli.stages.trees import write_in_order

REPAIR = "sample the shard with --resume"
REPLACE = "sample the shard again with --overwrite"


class ShardRun(NamedTuple):
    """One finished shard of one stage."""

    stage: str
    run: RunDirectory
    record: StageRecord
    extent: ShardExtent

    @property
    def shard(self) -> Shard:
        """Its index, and the number of shards."""
        return self.extent.shard

    @property
    def whole(self) -> WholePanel:
        """The panel that it is a part of."""
        return self.extent.panel

    @property
    def settings(self) -> Settings:
        """The settings of the whole run, without the shard. Raises DataError."""
        try:
            settings = resolve(base=self.record.settings)
        except DataError as error:
            # The advice behind the semicolon is for settings that a user wrote.
            fault = str(error).partition(";")[0]
            raise DataError(f"{self.run.manifest_path}: {fault}; {REPLACE}") from error
        return with_changes(settings, environment={"shard": None})

    @property
    def label(self) -> str:
        """The label of an evaluation; empty for a rollout."""
        return self.stage.partition("/")[2]

    @property
    def trees(self) -> Path:
        """The file of trees; an evaluation may have none."""
        return self.run.evaluation_trees(self.label) if self.label else self.run.trees

    @property
    def episodes(self) -> list[Episode]:
        """The episodes of an evaluation; a rollout writes none."""
        if not self.label:
            return []
        return list(read_records(self.run.evaluation(self.label), Episode))

    def tasks(self) -> list[str]:
        """The ids of its tasks, in order.

        Raises DataError for damaged files, and if they do not contain exactly the tasks
        with which the shard finished.
        """
        trees = self.trees
        keeps_all = not self.label or self.settings.evaluation.trees == "all"
        kept = []
        if keeps_all or is_there(trees):
            kept = [tree.task.id for _, tree in read_trees(trees)]
        tasks = kept
        file = trees
        if self.label:
            file = self.run.evaluation(self.label)
            rows = self.episodes
            if len({(row.task, row.sample) for row in rows}) < len(rows):
                raise DataError(f"{file}: holds an episode twice; {REPLACE}")
            tasks = list(dict.fromkeys(row.task for row in rows))
        if panel_hash(tasks) != self.record.panel:
            raise DataError(
                f"{file}: does not hold the tasks that the manifest names; {REPAIR}"
            )
        # As counts, so that a tree that is there twice is found too.
        if (kept != tasks) if keeps_all else not Counter(kept) <= Counter(tasks):
            raise DataError(f"{trees}: does not hold the trees of {file}; {REPAIR}")
        return tasks


@dataclass(frozen=True, kw_only=True)
class MergePlan(StagePlan):
    """A merge of one stage, ready to begin."""

    shards: Sequence[ShardRun]
    """In panel order."""
    tasks: Sequence[str]
    """Ids of the whole panel."""
    summary: EvaluationSummary | None
    """The summary of the first shard; None for a rollout."""

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The inputs of the shards, by their current paths."""
        return self.shards[0].record.inputs

    def counts(self) -> dict[str, int]:
        """The number of shards, and of tasks in the panel."""
        return {"shards": len(self.shards), "tasks": len(self.tasks)}


def plan(runs: Sequence[Path], out: Path) -> list[MergePlan]:
    """One plan, with output in `out`, for every stage that the runs have shards of."""
    found = [find_run(run) for run in runs]
    for run in found:
        if run.resolve() == out.resolve():
            raise UsageError(
                f"{run} cannot be merged into itself; choose another -o DIR"
            )
    held = [_shards_in(RunDirectory(run)) for run in found]
    plans = []
    for stage in sorted(set[str]().union(*held)):
        for run, shards in zip(runs, held, strict=True):
            if stage not in shards:
                raise UsageError(
                    f"{run}: no shard of {stage} has ended here, as in another run; go "
                    "on with it by --resume, or leave the others out"
                )
        of_stage = [shards[stage] for shards in held]
        plans.append(_plan(stage, of_stage, RunDirectory(out)))
    return plans


def _shards_in(run: RunDirectory) -> dict[str, ShardRun]:
    """The finished shards in a run, by stage. Raises UsageError if there are none."""
    shards = {}
    for name, record in run.load_manifest().stages.items():
        if "shard" in record.statistics:
            extent = _extent(run, name, record)
            shards[name] = ShardRun(name, run, record, extent)
    if not shards and is_adapter(str(run.checkpoint)):
        raise UsageError(
            f"{run.path}: holds an adapter and no shard; merge it into its model with: "
            f"agentcli export {word_of(run.path)} --to model"
        )
    if not shards:
        raise UsageError(
            f"{run.path}: holds no shard that has ended; go on with --resume, or "
            "write one elsewhere with: agentcli rollout --shard I/N"
        )
    return shards


def _extent(run: RunDirectory, stage: str, record: StageRecord) -> ShardExtent:
    """The shard recorded in the manifest. Raises DataError for a damaged entry."""
    try:
        return msgspec.convert(record.statistics["shard"], ShardExtent)
    except msgspec.ValidationError as error:
        raise DataError(
            f"{run.manifest_path}: stages.{stage}.statistics.shard: {error}"
        ) from error


def _plan(
    stage: str,
    shards: list[ShardRun],
    out: RunDirectory,
) -> MergePlan:
    shards = sorted(shards, key=lambda shard: shard.shard.index)
    sections = SECTIONS if stage == "rollout" else (*SECTIONS, "evaluation")
    _refuse_unlike(shards, sections)
    _refuse_incomplete(shards)
    held = [shard.tasks() for shard in shards]
    tasks = interleaved(held)
    if panel_hash(tasks) != shards[0].whole.sha256:
        raise DataError(
            f"{shards[0].run.path}: the shards do not make up the panel that their "
            "manifests name"
        )
    first = shards[0]
    summary = None
    outputs = [out.trees, out.seconds]
    if first.label:
        # The table has all k up to the one that was asked for.
        file = first.run.evaluation(first.label).with_suffix(".json")
        summary = read_json(file, EvaluationSummary)
        outputs = evaluate.outputs_of(out, first.label)
    return MergePlan(
        stage=stage,
        run=out,
        settings=first.settings,
        sections=sections,
        inputs={str(shard.shard): shard.trees for shard in shards},
        outputs=outputs,
        resumable=False,
        shards=shards,
        tasks=tasks,
        summary=summary,
    )


def _refuse_unlike(shards: Sequence[ShardRun], sections: tuple[str, ...]) -> None:
    """Raises UsageError for a shard with another panel, settings, seed or input."""
    first = shards[0]
    settings = determining(first.settings, sections)
    for other in shards[1:]:
        if other.shard.count != first.shard.count or other.whole != first.whole:
            raise UsageError(
                f"{first.run.path} is shard {first.shard} of panel {first.whole.name}, "
                f"{other.run.path} shard {other.shard} of {other.whole.name}; merge "
                "shards of one panel"
            )
        theirs = determining(other.settings, sections)
        differences = {
            "settings": first_difference(settings, theirs),
            "input": other_inputs(first.record.inputs, other.record.inputs),
        }
        for what, difference in differences.items():
            if difference:
                raise UsageError(
                    f"{other.run.path}: other {what} than {first.run.path}: "
                    f"{difference}; sample it again"
                )


def _refuse_incomplete(shards: Sequence[ShardRun]) -> None:
    """Raises UsageError for a shard that is given twice or missing."""
    # They are sorted, so that equal ones are neighbours.
    for one, two in pairwise(shards):
        if one.shard == two.shard:
            raise UsageError(
                f"shard {one.shard} is given twice: {one.run.path} and "
                f"{two.run.path}; give it once"
            )
    count = shards[0].shard.count
    given = {shard.shard.index for shard in shards}
    for index in range(1, count + 1):
        if index not in given:
            raise UsageError(
                f"shard {index}/{count} is missing; sample it with --shard "
                f"{index}/{count}"
            )


def perform(plan: MergePlan, session: Session) -> StageRecord | EvaluationSummary:
    """Writes the trees of all shards in panel order, and concludes as their stage does.

    The seconds are summed over the shards.
    """
    session.start()
    run = plan.run
    shards = plan.shards
    summary = plan.summary
    # Pictures first, as in a rollout: a tree must never name one that is missing.
    for shard in shards:
        if is_there(shard.trees):
            copy_pictures(shard.trees, run.pictures)
    if summary is None:
        # Read the smaller file first: if it is damaged, no trees are left behind.
        _join([shard.run.seconds for shard in shards], plan.tasks, run.seconds)
        _join([shard.trees for shard in shards], plan.tasks, run.trees)
    else:
        trees = run.evaluation_trees(summary.label)
        _join([shard.trees for shard in shards], plan.tasks, trees)
    seconds = Counter[str]()
    for shard in shards:
        seconds.update(shard.record.seconds)
    # Only the name and the ids of the panel are needed; the rest is in the trees.
    tasks = [Task(id=task, world="", split="", kind="") for task in plan.tasks]
    panel = make_panel(shards[0].whole.name, "", tasks)
    walked = rollout.PanelWalk(panel=panel, extent={}, seconds=seconds)
    if summary is None:
        return rollout.conclude(session, walked)
    k = max(map(int, summary.pass_at_k)) if summary.pass_at_k else None
    rows = chain.from_iterable(shard.episodes for shard in shards)
    # Each shard has already given its own warnings.
    before = evaluate.by_task(rows)
    return evaluate.conclude(session, summary.stage, k, walked, before)[0]


def _join(files: Sequence[Path], tasks: Sequence[str], out: Path) -> None:
    """Writes the lines of those files that exist to `out`, in the order of the tasks."""
    existing = [file for file in files if is_there(file)]
    if existing:
        write_in_order(existing, tasks, out)
