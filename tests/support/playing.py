"""Episodes of a world, played in its engine without a policy."""

from collections.abc import Callable

from agentcli.environments.protocol import Context, Engine, Observation
from agentcli.records.types import Task
from msgspec.structs import replace


def opened(engine: Engine, task: Task) -> Context:
    """What is known where an episode begins."""
    start = engine.start(task)
    seen = start.observation
    return Context(
        task=task,
        instruction=start.instruction,
        observations=(seen.text,),
        admissible=seen.actions,
        pictures=seen.pictures,
    )


def play(
    engine: Engine, task: Task, choose: Callable[[Context], str], limit: int, accepted: bool = False
) -> tuple[list[Context], Observation]:
    """One episode of at most `limit` steps: what was known before each and after the last, and the last observation.

    With `accepted`, every action must be.
    """
    contexts = [opened(engine, task)]
    for _ in range(limit):
        before = contexts[-1]
        action = choose(before)
        seen = engine.step(action)
        assert seen.accepted or not accepted, action
        past = {"observations": (*before.observations, seen.text), "actions": (*before.actions, action)}
        contexts.append(replace(before, **past, admissible=seen.actions, pictures=seen.pictures))
        if seen.end:
            break
    return contexts, seen
