"""What a step of each tool of tool_qa costs: the calls of its own experts, replayed in one process.

usage: python scripts/bench_tools.py [QUESTIONS]
"""

import sys
import time
from collections import defaultdict
from statistics import median

from agentcli.environments.registry import make_world, tasks_of
from agentcli.records.calls import ToolCall
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.tool_qa.questions import next_calls
from agentcli.worlds.tool_qa.world import ToolQaEngine


def asked_of(engine: ToolQaEngine) -> list[ToolCall]:
    """Every call that may meet the first need of the present question."""
    _, calls = next_calls(engine._question.needs, {})
    return [ToolCall(name, argument) for name, argument in calls]


def main(words: list[str]) -> None:
    """Prints calls, median, 95th percentile and maximum in ms for each tool."""
    questions = int(words[0]) if words else 500
    world = make_world(EnvironmentSettings(name="tool_qa"))
    engine = world.engine()
    assert isinstance(engine, ToolQaEngine)
    tasks = tasks_of(world, "tool_qa", "train")[:questions]
    took: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        engine.start(task)
        opened = engine.snapshot()
        for call in asked_of(engine):
            began = time.perf_counter()
            engine.step(str(call))
            took[call.name].append(1000 * (time.perf_counter() - began))
            engine.restore(opened)
    engine.close()
    print(f"{'tool':12} {'calls':>6} {'median':>8} {'p95':>8} {'max':>8}  ms")
    for name, times in sorted(took.items()):
        times.sort()
        late = times[int(0.95 * len(times))]
        print(
            f"{name:12} {len(times):6} {median(times):8.2f} {late:8.2f} {times[-1]:8.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
