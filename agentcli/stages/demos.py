"""demos: trajectories of an expert, or of any policy, as trees with one leaf each; `sft` learns from them.

The panel is walked in a seeded order, again and again until `demos.count` are written: more demonstrations than tasks
means other trajectories of the same tasks. Habits and noise on purpose are in the `demos` settings; steps that must not be
imitated carry `mask`.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from agentcli.errors import AgentCliError
from agentcli.exploration.registry import make
from agentcli.policies.protocol import Policy
from agentcli.records.files import derive_seed
from agentcli.records.runs import RunDirectory, link_latest
from agentcli.records.settings import Settings
from agentcli.records.types import Outcome, StageRecord, Task, Tree
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.resources import Engines, Stopwatch, grow, open_engines, open_policy
from agentcli.stages.rollout import Tally, share_of_success
from agentcli.stages.session import Invocation, Session

SECTIONS = ("environment", "policy", "prompt", "demos")
PATIENCE = 20
"""Episodes tried per demonstration kept before giving up."""


def demos(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """Write `demos.count` trajectories to `out`/trees.jsonl.

    Raises AgentCliError when the policy hardly ever succeeds and only successes are kept.
    """
    settings = msgspec.structs.replace(
        settings,
        policy=msgspec.structs.replace(settings.policy, kind="demonstrator", model=model),
        rollout=msgspec.structs.replace(settings.rollout, leaves=1, method="chain"),
    )
    record = asyncio.run(_demos(settings, out, invocation, model))
    link_latest(out)
    return record


async def _demos(settings: Settings, out: Path, invocation: Invocation, model: str | None) -> StageRecord:
    run, tally, progress, tried = RunDirectory(out), Tally(), invocation.progress, 0
    session = Session("demos", run, settings, invocation, SECTIONS)
    async with open_engines(settings) as engines, open_policy(settings, engines, model) as policy:
        panel = panel_for(engines.world, settings.environment)
        session.check([run.trees])
        watch = Stopwatch(engines, policy)
        progress.start(f"demonstrations ({settings.demos.policy})", settings.demos.count)
        with session.appending(run.trees) as write:
            async with aclosing(_episodes(engines, policy, settings, panel.tasks)) as episodes:
                async for tree in episodes:
                    tried += 1
                    if _kept(tree, settings):
                        write(tree)
                        tally.add(tree)
                        progress.advance(1, success=share_of_success(tree))
                    if tally.counts["trees"] == settings.demos.count:
                        break
                    if tried > PATIENCE * (settings.demos.count + len(panel.tasks)):
                        raise AgentCliError(
                            f"{settings.demos.policy} succeeded in {tally.counts['trees']} of {tried} episodes; "
                            "keep failures too with --set demos.keep=all, or choose another --policy"
                        )
        progress.stop()
        seconds = watch.seconds()
    return session.finish(
        panel=panel.sha256,
        panel_name=panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={"episodes_tried": tried},
        seconds=seconds,
    )


async def _episodes(
    engines: Engines, policy: Policy, settings: Settings, tasks: list[Task]
) -> AsyncGenerator[Tree, None]:
    """Endless episodes: the panel in a fresh seeded order each time round."""
    for lap in itertools.count():
        seed = derive_seed(settings.seed, "demos", lap)
        order = iteration_tasks(tasks, len(tasks), 0, seed)
        async with aclosing(grow(make("chain"), engines, policy, settings, order, seed)) as trees:
            async for tree in trees:
                yield tree


def _kept(tree: Tree, settings: Settings) -> bool:
    outcome = tree.steps[-1].outcome
    return outcome is Outcome.SUCCESS or (settings.demos.keep == "all" and outcome is not Outcome.ERRORED)
