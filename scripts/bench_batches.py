"""How full the policy's batches are while trees grow, by method and concurrency.

Prints the mean number of requests generated together, the seconds in all and inside the
policy, and requests per second. With more tasks than are in flight the figures are
those of a long rollout; the last tasks always leave smaller batches.

    python scripts/bench_batches.py runs/sft/checkpoint --methods chain spark carl
    --tasks 128 --concurrency 32 64 128
"""

import argparse
import asyncio
from contextlib import aclosing

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.policies.hf import TransformersPolicy
from agentcli.records.settings import Settings
from agentcli.stages.backend import LocalBackend, LocalSampler, TreeJob, grow
from agentcli.stages.layers import resolve
from agentcli.stages.panels import panel_for


async def measure(settings: Settings) -> None:
    """Grow a tree for every task and print one line."""
    rollout = settings.rollout
    world = make_world(settings.environment)
    model = settings.policy.model
    async with (
        EnginePool(settings.environment) as pool,
        LocalBackend(pool, keeps=False).policy(settings, world, model) as policy,
    ):
        assert isinstance(policy, TransformersPolicy)
        tasks = panel_for(world, settings.environment).tasks
        sampler = LocalSampler(world, pool, policy, settings)
        jobs = [TreeJob(task, settings.seed) for task in tasks]
        requests = 0
        async with aclosing(grow(sampler, jobs, rollout.concurrency)) as trees:
            async for grown in trees:
                requests += len(grown.tree.steps)
        seconds = sampler.seconds()
        rows = requests / max(1, policy._batcher.batches)
        print(
            f"{rollout.method}, {len(tasks)} tasks, {rollout.concurrency} in flight, "
            f"{rollout.leaves} leaves: {rows:.1f} of "
            f"{settings.policy.batch_rows} rows a batch; {seconds['sampling']:.1f} s, "
            f"policy {seconds['policy']:.1f} s; {requests / seconds['sampling']:.0f} "
            "requests/s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", help="directory of a policy, for instance runs/sft/checkpoint"
    )
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--methods", nargs="+", default=["chain", "spark", "carl"])
    parser.add_argument("--tasks", type=int, default=128)
    parser.add_argument("--leaves", type=int, default=8)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[32, 64, 128])
    arguments = parser.parse_args()
    for method in arguments.methods:
        for concurrency in arguments.concurrency:
            chosen = {
                "policy.model": arguments.model,
                "environment.tasks": arguments.tasks,
                "rollout.method": method,
                "rollout.leaves": arguments.leaves,
                "rollout.concurrency": concurrency,
            }
            asyncio.run(measure(resolve(arguments.preset, [], {}, [], chosen)))


if __name__ == "__main__":
    main()
