"""How many prompt tokens a prefix cache saves, with the papers' order of the full prompt and with `shared`.

The steps of each run's trees are asked anew in both orders, from what was observed and done, and the prompts are tokenised. The
cache keeps whole blocks and forgets nothing; one run has one cache.

    python scripts/measure_prefixes.py --tokenizer DIR runs/chain runs/spark
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcli.environments.protocol import Context
from agentcli.environments.registry import make_world
from agentcli.exploration.settings import decode
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import load_tokenizer
from agentcli.prompts.protocol import Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Step, Tree

STYLES = ("full", "shared")


def main() -> None:
    """Measures and prints a line for each run."""
    options = _options()
    tokenizer = load_tokenizer(options.tokenizer)
    table = Table(
        "run",
        "method",
        "prompts",
        "tokens a prompt",
        "saved, full %",
        "saved, shared %",
    )
    for path in options.runs:
        run = RunDirectory(path)
        trees = list(read_records(run.trees, Tree))
        prompts = {style: _prompts(run, trees, style, tokenizer) for style in STYLES}
        saved = [_saved(prompts[style], options.block) for style in STYLES]
        lengths = [len(prompt) for prompt in prompts["full"]]
        mean = sum(lengths) / len(lengths)
        shares = [f"{100 * share:.1f}" for share in saved]
        table.add_row(
            path.name, trees[0].method, str(len(lengths)), f"{mean:.0f}", *shares
        )
    Console(width=100).print(table)


def _prompts(
    run: RunDirectory, trees: Sequence[Tree], style: str, tokenizer: Any
) -> list[list[int]]:
    """The token ids of every prompt, in the order of the trees."""
    record = run.finished("rollout")
    assert record is not None, f"{run.path}: no finished rollout"
    world = make_world(decode(record.settings).environment)
    dialect = make_dialect(PromptSettings(style=style), world)
    texts = [
        dialect.ask(Moment(copies=(context,))).text
        for tree in trees
        for context in _contexts(tree)
    ]
    return [prompt_ids(tokenizer, text) for text in texts]


def _contexts(tree: Tree) -> Iterator[Context]:
    """What the agent knew at each step."""
    for step in tree.steps:
        past = _past(tree, step)
        yield Context(
            task=tree.task,
            instruction=tree.instruction,
            observations=(*(before.observation for before in past), step.observation),
            actions=tuple(before.action or "" for before in past),
            admissible=tuple(step.admissible),
        )


def _past(tree: Tree, step: Step) -> list[Step]:
    """The steps before one, oldest first."""
    past: list[Step] = []
    while step.parent is not None:
        step = tree.steps[step.parent]
        past.insert(0, step)
    return past


def _saved(prompts: Sequence[Sequence[int]], block: int) -> float:
    """The share of all tokens that lie in blocks which an earlier prompt began with."""
    known: set[tuple[int, ...]] = set()
    saved = total = 0
    for prompt in prompts:
        total += len(prompt)
        ends = range(block, len(prompt) + 1, block)
        saved += block * sum(tuple(prompt[:end]) in known for end in ends)
        known.update(tuple(prompt[:end]) for end in ends)
    return saved / total


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True, help="directory of a model")
    parser.add_argument(
        "--block",
        type=int,
        default=16,
        help="tokens of a block, as vLLM has them on a GPU",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
