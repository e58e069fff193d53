"""What the corpus of search_qa costs: made, indexed, searched; and what a step of its engine costs.

usage: python scripts/bench_search.py [DOCUMENTS]
"""

import random
import resource
import sys
import time
from statistics import median

from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.search_qa.engine import SearchQaEngine
from agentcli.worlds.search_qa.questions import corpus
from agentcli.worlds.search_qa.retrievers import EmbeddedRetriever

QUERIES = 2000
EPISODES = 500


def main(words: list[str]) -> None:
    """Prints seconds, and median, 95th percentile and maximum in ms."""
    documents = int(words[0]) if words else 20_000
    began = time.process_time()
    retriever = EmbeddedRetriever(corpus(documents, 0))
    made = time.process_time()
    retriever.search(["anything"], 3)
    indexed = time.process_time()
    print(f"{documents:,} documents made: {made - began:.2f} processor seconds")
    print(f"indexed: {indexed - made:.2f} processor seconds")
    print(f"most memory: {memory():,.0f} MiB")
    rng = random.Random(0)
    titles = [document.title for document in rng.sample(corpus(documents, 0), QUERIES)]
    show("query, a name", [timed(retriever, title) for title in titles])
    texts = [f"Who is the mayor of the birthplace of {title}?" for title in titles]
    show("query, a question", [timed(retriever, text) for text in texts])
    time_engine(documents)


def time_engine(documents: int) -> None:
    """Steps of the expert, and going back to states."""
    sizes = {"test": EPISODES}
    options = {"documents": documents, "actions": "browse", "sizes": sizes}
    world = make_world(EnvironmentSettings(name="search_qa", options=options))
    engine = world.engine()
    assert isinstance(engine, SearchQaEngine)
    steps, forks = [], []
    for task in world.tasks("test"):
        engine.start(task)
        for action in engine.plan():
            began = time.perf_counter()
            engine.step(action)
            steps.append(1000 * since(began))
            snapshot = engine.snapshot()
            began = time.perf_counter()
            engine.restore(snapshot)
            forks.append(1000 * since(began))
    show("step", steps)
    show("restore", forks)
    print(f"most memory: {memory():,.0f} MiB")


def timed(retriever: EmbeddedRetriever, query: str) -> float:
    """Milliseconds of one query."""
    began = time.perf_counter()
    retriever.search([query], 3)
    return 1000 * since(began)


def show(name: str, times: list[float]) -> None:
    """One line of a table."""
    times = sorted(times)
    late = times[int(0.95 * len(times))]
    print(f"{name:20} {len(times):6} {median(times):8.3f} {late:8.3f} {times[-1]:8.3f}")


def since(began: float) -> float:
    """Seconds that have passed."""
    return time.perf_counter() - began


def memory() -> float:
    """The most memory this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
