"""What a page costs: its size, the seconds and memory of writing it, and how soon it answers in Chromium.

usage: python scripts/bench_page.py [small|accounts|large]...

small: 1,000 trees of 16 steps with credit. accounts: the same with and without accounts. large: 100 MB of trees. Chromium and
Node come from scripts/test_browser.sh.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from agentcli.records.files import RecordWriter
from agentcli.records.types import Ledger, Outcome, Step, Task, Tree

ROOT = Path(__file__).parents[1]
BUDGETS = {
    "page, MB": 10,
    "written in, s": 10,
    "ready, s": 1,
    "a tree opened, s": 0.3,
    "a key, s": 0.1,
}
WORDS = [
    f"{first}{second}"
    for first in ("gar", "tol", "min", "ras", "pel")
    for second in ("den", "via", "ter", "lo", "sk")
]
STEPS, CHAINS = 16, 4


def sentence(draw: random.Random, words: int) -> str:
    """Random words, so that nothing compresses better than real texts."""
    return " ".join(draw.choices(WORDS, k=words))


def random_tree(number: int, draw: random.Random, words: int) -> Tree:
    """Four chains of four steps; every prompt holds the one before."""
    steps: list[Step] = []
    for chain in range(CHAINS):
        prompt = f"Your task: {sentence(draw, 12)}."
        for place in range(STEPS // CHAINS):
            last = place == STEPS // CHAINS - 1
            seen, after = sentence(draw, words), sentence(draw, words)
            prompt += f"\nYou see {seen}. What now?"
            tokens = [draw.randrange(500) for _ in range(12)]
            won = Outcome.SUCCESS if draw.random() < 0.4 else Outcome.TRUNCATED
            steps.append(
                Step(
                    id=len(steps),
                    parent=len(steps) - 1 if place else None,
                    prompt=prompt,
                    response=f"<think> {sentence(draw, 8)} </think><action> go {sentence(draw, 1)} </action>",
                    token_ids=tokens,
                    logprobs=[-draw.expovariate(5) for _ in tokens],
                    observation=seen,
                    admissible=[f"go {word}" for word in WORDS],
                    action=f"go {draw.choice(WORDS)}",
                    tag="think",
                    state=f"{chain if place else 0}-{place}",
                    next_state=f"{chain}-{place + 1}",
                    next_observation=after,
                    outcome=won if last else None,
                )
            )
    task = Task(id=f"t/{number}", world="w", split="train", kind=f"kind_{number % 3}")
    return Tree(
        task=task,
        instruction=sentence(draw, 8),
        method="chain",
        seed=number,
        steps=steps,
        ledger=Ledger(leaves=CHAINS, steps=STEPS),
    )


def make_run(folder: Path, size: str) -> Path:
    """A run of random trees: 1,000, or 100 MB."""
    draw = random.Random(0)
    file = folder / "run/trees.jsonl"
    words = 30 if size == "small" else 120
    with RecordWriter(file) as writer:
        number = 0
        while number < 1000 if size == "small" else file.stat().st_size < 100_000_000:
            writer.write(random_tree(number, draw, words))
            number += 1
    return file.parent


class Cost(NamedTuple):
    """The cost of writing a page."""

    seconds: float
    processor_seconds: float
    megabytes: float
    """The most of memory."""


def write(run: Path, page: Path, *words: str) -> Cost:
    """What `agentcli view` takes."""
    command = [
        sys.executable,
        "-m",
        "agentcli",
        "view",
        str(run),
        "-o",
        str(page),
        "-q",
        "--overwrite",
        *words,
    ]
    begun = time.perf_counter()
    writer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(writer.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        sys.exit(f"agentcli view ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def browse(page: Path) -> dict[str, float]:
    """Seconds until the page is ready, a tree is open, and a key was answered: the worst of ten."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    from browsers import Browser

    browser = Browser("chrome")
    browser.open(page)
    # Since the navigation began, as the page's own clock has it.
    ready = browser.run("performance.getEntriesByName('ready')[0].startTime / 1000")
    clock = "const begun = performance.now(); const before = document.documentElement.dataset.ready;"
    look = (
        "const look = () => document.documentElement.dataset.ready === before ? setTimeout(look)"
        " : requestAnimationFrame(() => done((performance.now() - begun) / 1000)); look();"
    )
    opened = []
    for line in range(1, 11):
        view = f"view=tree&run=run&line={line * 90}&step=0"
        opened.append(
            browser.run(
                f"new Promise((done) => {{ {clock} location.hash = '{view}'; {look} }})"
            )
        )
    pressed = []
    for arrow in ("ArrowRight", "ArrowLeft") * 5:
        key = f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{arrow}', bubbles: true }}));"
        pressed.append(
            browser.run(f"new Promise((done) => {{ {clock} {key} {look} }})")
        )
    browser.close()
    return {
        "ready, s": ready,
        "a tree opened, s": max(opened),
        "a key, s": max(pressed),
    }


def main(words: list[str]) -> None:
    """Prints what was measured beside its budget."""
    sizes = words or ["small", "accounts", "large"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = folder / "page.html"
        for size in sizes:
            run = make_run(folder, "large" if size == "large" else "small")
            credit = () if size == "large" else ("--credit", "grpo")
            cost = write(run, page, *credit)
            trees = (run / "trees.jsonl").stat().st_size / 1e6
            print(
                f"{size}: {trees:.0f} MB of trees, page {page.stat().st_size / 1e6:.1f} MB, {cost.seconds:.1f} s "
                f"({cost.processor_seconds:.1f} s of a processor), Python {cost.megabytes:.0f} MB"
            )
            if size == "accounts":
                without = write(run, page, *credit, "--no-accounts")
                ratio = cost.processor_seconds / without.processor_seconds
                print(
                    f"  without accounts {without.processor_seconds:.1f} s: with them {ratio:.2f} times as long"
                )
            if size == "small":
                measured = {
                    "page, MB": page.stat().st_size / 1e6,
                    "written in, s": cost.seconds,
                }
                for what, value in (measured | browse(page)).items():
                    print(f"  {what:18} {value:6.2f}  budget {BUDGETS[what]:g}")


if __name__ == "__main__":
    main(sys.argv[1:])
