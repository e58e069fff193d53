"""rare-tool: runs the rarest tool that a judge finds viable (Rare-tool section 4.1).

At each of K steps a generator thinks and gives a query for a tool. A judge scores nine
actions (eight tools and chain of thought) from 0 to 10. The rule `select` chooses one
of them, whatever tool the generator named, and it is run on the query. A response with
an answer has no query: it counts as chain of thought, and nothing is chosen.

Step.notes store what offline PPO learns from: the tool, the query, all nine scores, the
chosen and the best score, process_ok, and the executed action written as a response
(`trained`).
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, field

from agentcli.environments.protocol import Toolbox, Verdict, world_as
from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor
from agentcli.exploration.judge import LEAST, MOST, JudgeSettings, ask_judge
from agentcli.exploration.nodes import Node, Response, spelled
from agentcli.policies.registry import MODEL_FREE
from agentcli.records.calls import ANSWER, COT, ToolCall, read_call
from agentcli.records.files import derive_seed
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree

TOOL_JUDGE = "tool-judge"
"""The judge without a model (policies/model_free.py)."""
VIABLE = 6.0
"""The lowest score of a viable tool in Rare-tool section 4.1."""
Rule = Literal["rarity", "greedy", "random"]


class RareToolRollout(RolloutSettings, kw_only=True):
    """Settings of rare-tool."""

    capability: ClassVar[type] = Toolbox
    replaces: ClassVar[bool] = True
    redraws: ClassVar[bool] = False

    judge: JudgeSettings = field(
        default_factory=partial(JudgeSettings, kind=TOOL_JUDGE)
    )
    """The model that scores the actions: any kind of policy, or tool-judge, which runs
    every tool and knows the answer, or plausible, which scores them by their kind.
    """
    select: Rule = "rarity"
    """Which action is run. rarity: the lowest score among the viable tools (Rare-tool).
    greedy: the highest score (Rare-tool's PPO without diversity). random: any viable
    tool.
    """
    threshold: Annotated[float, Meta(ge=LEAST, le=MOST)] = VIABLE
    """The lowest score at which a tool is viable; greedy has no such bound."""

    def check(self) -> None:
        """Raises UsageError for a cache or a threshold that is not read."""
        super().check()
        # They read the world besides the question, and a cache knows the question alone.
        if self.judge.cache is not None and self.judge.kind in MODEL_FREE:
            raise UsageError(
                f"rollout.judge.cache: keeps what a model answers, and "
                f"rollout.judge.kind {self.judge.kind} is none; leave it out"
            )
        if self.select == "greedy" and self.threshold != VIABLE:
            raise UsageError(
                "rollout.threshold: has no effect where rollout.select is greedy; use "
                "--select rarity"
            )

    @property
    def remark(self) -> str:
        """Which judge there is where none was named."""
        if self.judge.kind != TOOL_JUDGE:
            return ""
        return (
            f"judge {TOOL_JUDGE}, which runs every tool and knows the answer; choose a "
            "model with --set rollout.judge.kind=openai"
        )


async def explore(actor: Actor, settings: RareToolRollout) -> Tree:
    """Grows `leaves` trajectories from the root; a judge's scores choose every tool.

    Raises UsageError for a world without tools.
    """
    tools = world_as(actor.world, Toolbox, "rollout.method", "rare-tool").tools
    if not tools:
        raise UsageError(
            "rollout.method: rare-tool chooses between tools, and "
            "environment.options.tools names none"
        )
    root = await actor.start()
    numbers = range(settings.leaves)
    await asyncio.gather(
        *(_follow(actor, settings, tools, root, number) for number in numbers)
    )
    return actor.tree("rare-tool")


async def _follow(
    actor: Actor,
    settings: RareToolRollout,
    tools: Mapping[str, str],
    node: Node,
    index: int,
) -> None:
    """Acts from `node` to the end of one trajectory."""
    while not node.finished:
        node = await _step(actor, settings, tools, node, index)
        # Only the initial state has several responses.
        index = 0


async def _step(
    actor: Actor,
    settings: RareToolRollout,
    tools: Mapping[str, str],
    node: Node,
    index: int,
) -> Node:
    """Samples a response, has it judged, and executes the chosen action."""
    response = await actor.sample(node, index)
    call = _call(response)
    if call is None:
        return await actor.execute(node, index, response)
    thought = response.answer.reasoning or ""
    query = str(call) if call.name == ANSWER else call.argument
    verdict = await ask_judge(actor, node, index, settings.judge, tools, thought, query)
    if not isinstance(verdict, Verdict):
        return await actor.execute(node, index, replace(response, error=verdict))
    chosen = COT
    if call.name != ANSWER:
        seed = derive_seed(actor.seed, actor.task.id, spelled(node.lineage), index)
        # Seeded by the place: what other trajectories do does not change the draw.
        rng = random.Random(seed)
        chosen = select(verdict.scores, settings.select, settings.threshold, rng)
        call = ToolCall(chosen, call.argument)
    actions = {1: str(call)}
    answer = msgspec.structs.replace(response.answer, actions=actions)
    after = await actor.execute(node, index, replace(response, answer=answer))
    scores = {f"score_{name}": score for name, score in verdict.scores.items()}
    actor.note(
        after,
        tool=chosen,
        query=query,
        chosen=verdict.scores[chosen],
        best=max(verdict.scores.values()),
        process_ok=float(verdict.process_ok),
        trained=actor.dialect.write(answer, node.moment),
        **scores,
    )
    return after


def select(
    scores: Mapping[str, float],
    rule: Rule,
    threshold: float,
    rng: random.Random,
) -> str:
    """The action to run, given the scores of all tools and of chain of thought.

    Chain of thought runs if it scores higher than every tool. Under rarity and random
    it also runs if no tool reaches the threshold. Ties go to the first in `scores`.
    """
    tools = [name for name in scores if name != COT]
    # `max` and `min` take the first of equals, so ties follow the order of the tools.
    highest = max(tools, key=scores.__getitem__)
    # Rare-tool 4.1: only where it is "strictly superior".
    if scores[COT] > scores[highest]:
        return COT
    if rule == "greedy":
        return highest
    # From the threshold on: 4.1 says greater, but Table 1 runs a tool at 6.0.
    viable = [name for name in tools if scores[name] >= threshold]
    if not viable:
        return COT
    if rule == "random":
        return rng.choice(viable)
    # Rare-tool 4.1: among the tools that would do, the one the judge likes least.
    return min(viable, key=scores.__getitem__)


def _call(response: Response) -> ToolCall | None:
    """The call in a response; None if there is none."""
    if response.error is not None or not response.answer.actions:
        return None
    (action,) = response.answer.actions.values()
    return read_call(action)
