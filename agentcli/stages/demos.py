"""demos: trajectories of an expert, or of any policy, as trees with one leaf each; `sft` learns from them.

The panel is walked in a seeded order, again and again until `demos.count` are written: more demonstrations than tasks
means other trajectories of the same tasks. Habits and noise on purpose are in the `demos` settings; steps that must not be
imitated carry `mask`.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.exploration.registry import make
from agentcli.policies.protocol import Policy
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.types import Outcome, StageRecord, Task, Tree, TreeSeconds
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.resources import Engines, Stopwatch, grow, open_engines, open_policy
from agentcli.stages.rollout import sampling_inputs, single
from agentcli.stages.session import Invocation, Session
from agentcli.stages.tally import NOT_KEPT, Tally, share_of_success, tally_of

SECTIONS = ("environment", "policy", "prompt", "demos")
PATIENCE = 20
"""Episodes tried per demonstration kept before giving up."""


def demos(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """Write `demos.count` trajectories to `out`/trees.jsonl.

    Raises AgentCliError when the policy hardly ever succeeds and only successes are kept.
    """
    name = settings.policy.model if settings.demos.policy == "openai" else model
    settings = msgspec.structs.replace(
        settings,
        policy=msgspec.structs.replace(settings.policy, kind="demonstrator", model=name),
        rollout=msgspec.structs.replace(settings.rollout, leaves=1, method=single(settings.rollout.method)),
    )
    return asyncio.run(_demos(settings, out, invocation, model))


async def _demos(settings: Settings, out: Path, invocation: Invocation, model: str | None) -> StageRecord:
    run = RunDirectory(out)
    inputs, form = sampling_inputs(settings, model), {"rollout": _form(settings.rollout)}
    with Session("demos", run, settings, invocation, SECTIONS, inputs, form) as session:
        resumed = session.check([run.trees, run.seconds]) and run.trees.exists()
        if resumed and session.done and tally_of(run.trees).counts["trees"] == settings.demos.count:
            return session.nothing_owed(session.done)
        async with open_engines(settings) as engines, open_policy(settings, engines, model) as policy:
            panel = panel_for(engines.world, settings.environment)
            done, won, tried = _written(run.trees, panel.tasks, settings) if resumed else (0, 0, 0)
            watch, sampled, total = Stopwatch(engines, policy), Tally(), settings.demos.count
            title = f"demonstrations ({settings.demos.policy})"
            session.progress.start(title, total, done, won / done if done else None)
            timed: dict[str, TreeSeconds] = {}
            with session.appending(run.trees) as write, session.appending(run.seconds) as note:
                async with aclosing(_episodes(engines, policy, settings, panel.tasks, tried, timed)) as episodes:
                    while done < total:
                        tree = await anext(episodes)
                        sampled.add(tree)
                        tried += 1
                        if _kept(tree, settings):
                            write(tree)
                            note(timed[tree.task.id])
                            done += 1
                            session.progress.advance(1, success=share_of_success(tree))
                        elif tried > PATIENCE * (total + len(panel.tasks)):
                            _warn(session, sampled)
                            raise _hopeless(settings, done, tried)
            _warn(session, sampled)
            seconds = watch.seconds()
        tally = tally_of(run.trees)
        return session.finish(
            latest=True,
            panel=panel.sha256,
            panel_name=panel.name,
            counts=tally.counts,
            ledger=tally.ledger,
            statistics={"episodes_tried": tried},
            seconds=seconds,
        )


def _form(rollout: RolloutSettings) -> dict[str, Any]:
    """What of the rollout's settings an episode depends on."""
    of_copies = {"copies": rollout.copies, "beyond": rollout.beyond} if rollout.method == "dpepo" else {}
    return {"method": rollout.method, "overlong": rollout.overlong, **of_copies}


def _warn(session: Session, sampled: Tally) -> None:
    """End the bar, and tell what was wrong with the episodes that were tried."""
    session.progress.stop()
    for line in sampled.warnings(session.settings, NOT_KEPT):
        session.progress.note(line)


def _hopeless(settings: Settings, kept: int, tried: int) -> AgentCliError:
    return AgentCliError(
        f"{settings.demos.policy} succeeded in {kept} of {tried} episodes; "
        "keep failures too with --set demos.keep=all, or choose another --policy"
    )


def _laps(tasks: list[Task], seed: int) -> Iterator[tuple[int, list[Task]]]:
    """Endless laps over the panel: each lap's seed and its order of the tasks."""
    for lap in itertools.count():
        own = derive_seed(seed, "demos", lap)
        yield own, iteration_tasks(tasks, len(tasks), 0, own)


async def _episodes(
    engines: Engines,
    policy: Policy,
    settings: Settings,
    tasks: list[Task],
    skip: int,
    timed: dict[str, TreeSeconds],
) -> AsyncGenerator[Tree, None]:
    """Endless episodes, without the first `skip` of them."""
    for seed, order in itertools.islice(_laps(tasks, settings.seed), skip // len(tasks), None):
        owed, skip = order[skip % len(tasks) :], 0
        growing = grow(make(settings.rollout.method), engines, policy, settings, owed, seed, timed=timed)
        async with aclosing(growing) as trees:
            async for tree in trees:
                yield tree


def _written(path: Path, tasks: list[Task], settings: Settings) -> tuple[int, float, int]:
    """Of an interrupted file: how many demonstrations it holds, how many of them succeeded, how many episodes were tried."""
    done, won, last = 0, 0.0, None
    for tree in read_records(path, Tree):
        done, won, last = done + 1, won + share_of_success(tree), tree
    if last is None:
        return 0, 0, 0
    for lap, (seed, order) in enumerate(_laps(tasks, settings.seed)):
        if seed == last.seed:
            places = {task.id: place for place, task in enumerate(order)}
            if last.task.id in places:
                return done, won, lap * len(tasks) + places[last.task.id] + 1
        if lap > PATIENCE * (settings.demos.count + len(tasks)):
            break
    raise DataError(f"{path}: its last tree ({last.task.id}) is none of this panel's; write anew with --overwrite")


def _kept(tree: Tree, settings: Settings) -> bool:
    outcome = tree.steps[-1].outcome
    return outcome is Outcome.SUCCESS or (settings.demos.keep == "all" and outcome is not Outcome.ERRORED)
