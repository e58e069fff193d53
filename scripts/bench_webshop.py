"""Times WebShop: steps on the generated catalogue, and the index of a large one.

    python scripts/bench_webshop.py [--products 1180000]

Steps: the expert's plans, and random clicks. The large catalogue goes the way of
WebShop's own files, from rows to the shelf in a temporary folder; queries are those of
the searching expert. Memory is the most that the process held.
"""

import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.webshop.catalogue import fill, open_shelf
from agentcli.worlds.webshop.generator import WebshopOptions, generated
from agentcli.worlds.webshop.products import Product
from agentcli.worlds.webshop.tutor import wish_of

TASKS = 200
QUERIES = 1000
ASKERS = 10_000
"""Products that give goals; were it all of a million, there would be 30 million goals."""


def main(
    products: Annotated[int, typer.Option(help="Products of the large catalogue.")] = 0,
) -> None:
    """Prints times in milliseconds and seconds, memory in MiB."""
    time_steps()
    if products:
        with tempfile.TemporaryDirectory() as folder:
            time_large(Path(folder) / "shelf", WebshopOptions(products=products))


def time_steps() -> None:
    """A step by the expert and at random, and a fork."""
    world = make_world(EnvironmentSettings(name="webshop"))
    engine = world.engine()
    tasks = world.tasks("test")
    steps: list[float] = []
    forks: list[float] = []
    rng = random.Random(0)
    for task in tasks[:TASKS]:
        observation = engine.start(task).observation
        actions = engine.plan()
        for _ in range(10):
            steps.append(timed(engine.step, actions.pop(0) if actions else "nonsense"))
            observation = engine.restore(engine.snapshot())
            forks.append(timed(engine.restore, engine.snapshot()))
            if not actions and observation.actions:
                actions = [rng.choice(observation.actions)]
    show("step, 1,000 products", steps)
    show("restore", forks)


def time_large(folder: Path, options: WebshopOptions) -> None:
    """The shelf of a large catalogue: made, opened, searched."""
    wishes: list[str] = []
    began = time.perf_counter()
    fill(folder, with_goals(generated(options), wishes), options.goals)
    print(f"{options.products:,} products made, written and indexed: {since(began)} s")
    print(f"most memory: {memory():,.0f} MiB")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"on disk: {size / 2**20:,.0f} MiB")
    began = time.perf_counter()
    catalogue = open_shelf(folder, options.goals)
    print(f"opened: {since(began)} s; goals {len(catalogue.order):,}: {since(began)} s")
    catalogue.search(wishes[0])
    queries = random.Random(1).sample(wishes, min(QUERIES, len(wishes)))
    show(
        "query",
        [timed(catalogue.search, " ".join(wish_of(one).words)) for one in queries],
    )


def with_goals(products: Iterator[Product], wishes: list[str]) -> Iterator[Product]:
    """The products, of which the first ASKERS give goals; notes what they are wanted for."""
    for place, product in enumerate(products):
        if place < ASKERS:
            wishes.append(product.instruction or "")
            yield product
        else:
            yield msgspec.structs.replace(product, instruction=None)


def timed(call, argument) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    call(argument)
    return 1000 * (time.perf_counter() - began)


def since(began: float) -> str:
    """Seconds that have passed."""
    return f"{time.perf_counter() - began:.1f}"


def memory() -> float:
    """The most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(name: str, times: list[float]) -> None:
    """One line of times."""
    times = sorted(times)
    late = times[int(0.95 * len(times))]
    median = statistics.median(times)
    print(f"{name}: median {median:.3f} ms, p95 {late:.3f} ms, most {times[-1]:.3f} ms")


if __name__ == "__main__":
    typer.run(main)
