"""import: the trajectories of another program, as a run of this one.

The trees have no world that could play them, and lack what the file lacks. That is
counted in the manifest and said on the terminal; what needs it refuses them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.summary import summarise
from agentcli.records.files import rewriting
from agentcli.records.foreign.rollouts import ForeignRollout, ImportChoices, tree_of
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import IMPORTED, LARGEST_REWARD, Episode, StageRecord
from agentcli.registry import nearest
from agentcli.reports.standing import Standing
from agentcli.stages.plan import StagePlan, plain, with_changes
from agentcli.stages.session import Session
from agentcli.stages.tally import Tally

FORMS = {"verifiers": "verifiers", "messages": "messages", "inspect": "inspect_logs"}
"""The formats, and the modules of records/foreign that read them."""
LACKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "states": (
        lambda step: bool(step.state),
        "gigpo, rewardflow, dpepo and grpo-prm refuse the trees; --states observation "
        "takes the last observation for the state",
    ),
    "tags": (lambda step: bool(step.tag), "rlvmr refuses the trees"),
    "token_ids": (lambda step: bool(step.token_ids), "train refuses the steps"),
    "logprobs": (lambda step: bool(step.logprobs), "train refuses the steps"),
}
"""What a step may lack: whether it has it, and what follows if not."""


@dataclass(frozen=True, kw_only=True)
class ImportPlan(StagePlan):
    """An import that is ready to begin."""

    file: Path
    choices: ImportChoices

    def counts(self) -> dict[str, int]:
        """The trajectories and groups in the file. Raises DataError for a damaged one."""
        groups, _ = grouped(self.file, self.choices)
        ends = 0
        for rollout in (one for group in groups.values() for one in group):
            ends += sum(turn.end is not None for turn in rollout.turns)
        return {"trees": len(groups), "trajectories": ends}


def plan(
    file: Path | None,
    form: str | None,
    out: Path,
    *,
    states: str | None,
    success: float | None,
    score: str | None,
) -> ImportPlan:
    """Plans to read `file` into a run. Raises UsageError for an option that is no choice."""
    if form is None:
        raise UsageError(f"name the format with --from: {', '.join(FORMS)}")
    if form not in FORMS:
        raise UsageError(f"--from {form}: no such format; {nearest(form, FORMS)}")
    if states not in (None, "none", "observation"):
        raise UsageError(f"--states {states}: must be none or observation")
    if file is None:
        raise UsageError(f"name the file: agentcli import FILE --from {form}")
    if success is not None and not 0 < success <= LARGEST_REWARD:
        most = f"{LARGEST_REWARD:g}"
        raise UsageError(f"--success {success}: must be above 0 and at most {most}")
    if score is not None and form != "inspect":
        raise UsageError(f"--score has no effect with --from {form}; leave it out")
    choices = ImportChoices(
        form, states or "none", 1.0 if success is None else success, score
    )
    run = RunDirectory(out)
    settings = with_changes(Settings(), environment={"name": IMPORTED})
    # A graded reward counts as it is: no verdict says which ones are successes.
    settings = msgspec.structs.replace(
        settings, credit={"method": "grpo", "outcome": "score"}
    )
    return ImportPlan(
        stage="import",
        run=run,
        settings=settings,
        sections=("environment",),
        conditions={"import": choices._asdict()},
        inputs={form: file},
        sources=[file],
        outputs=[run.trees],
        resumable=False,
        file=file,
        choices=choices,
    )


def perform(plan: ImportPlan, session: Session) -> StageRecord:
    """Writes trees.jsonl. Raises DataError for a damaged file, and then writes nothing."""
    progress = session.progress
    progress.start(Standing(f"import {plan.choices.form}", None))
    tally = Tally()
    rows: list[Episode] = []
    lacking = dict.fromkeys(LACKS, 0)
    with rewriting(plan.run.trees) as writer:
        groups, unanswered = grouped(plan.file, plan.choices)
        for group in groups.values():
            tree = tree_of(group, plan.choices)
            writer.write(tree)
            tally.add(tree)
            rows += episodes(tree)
            for name, (has, _) in LACKS.items():
                lacking[name] += sum(not has(step) for step in tree.steps)
            progress.advance()
        # Only now: an earlier output outlives a file that turns out to be damaged.
        session.start()
    progress.stop()
    for name, steps in lacking.items():
        if steps:
            progress.note(
                f"without {name}: {steps} of {tally.ledger.steps} steps; {LACKS[name][1]}"
            )
    if unanswered:
        progress.note(
            f"without a response: {unanswered} trajectories; no group counts them"
        )
    return session.finish(
        latest=True,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={
            "import": plan.choices._asdict(),
            "lacking": lacking | {"responses": unanswered},
            "results": plain(summarise(rows)),
        },
    )


def grouped(
    file: Path, choices: ImportChoices
) -> tuple[dict[str, list[ForeignRollout]], int]:
    """The rollouts with a response by group, in order of the file.

    And the number of those without one, which cannot be a part of a tree.
    Raises DataError for a damaged file, and for one without any response.
    """
    module = import_module(f"agentcli.records.foreign.{FORMS[choices.form]}")
    read: Callable[[Path, ImportChoices], Iterator[ForeignRollout]] = module.read
    groups: dict[str, list[ForeignRollout]] = {}
    unanswered = 0
    # Rollouts of one group may lie anywhere in the file, so all of it is held.
    for rollout in read(file, choices):
        if rollout.turns:
            groups.setdefault(rollout.group, []).append(rollout)
        else:
            unanswered += 1
    if not groups:
        raise DataError(
            f"{file}: holds no response of a model; name another file, or another --from"
        )
    return groups, unanswered
