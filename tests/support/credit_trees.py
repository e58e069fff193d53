"""Trees for credit tests: written by hand, built from the golden inputs, or drawn at random."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentcli.credit.registry import METHODS
from agentcli.records.types import Credit, Ledger, Move, Outcome, Step, Task, Tree, Validity
from hypothesis import strategies as st

GOLDEN = Path(__file__).parents[1] / "golden"
SUCCESS, FAILURE, TRUNCATED, ERRORED = Outcome.SUCCESS, Outcome.FAILURE, Outcome.TRUNCATED, Outcome.ERRORED


def golden(name: str, part: str = "cases") -> list[dict[str, Any]]:
    return json.loads((GOLDEN / name).read_text())[part]


def step(number: int, parent: int | None, **fields: Any) -> Step:
    base: dict[str, Any] = {
        "prompt": "",
        "response": "",
        "observation": "",
        "action": f"go {number}",
        "state": f"s{number}",
        "next_state": f"n{number}",
        "next_observation": "",
        "score": 0.5,
    }
    return Step(id=number, parent=parent, **{**base, **fields})


def move(copy: int, action: str, state: str = "s", **fields: Any) -> Move:
    base: dict[str, Any] = {"observation": "", "next_state": "", "next_observation": ""}
    return Move(copy=copy, action=action, state=state, **{**base, **fields})


def tree(*steps: Step) -> Tree:
    task = Task(id="t", world="w", split="train", kind="k")
    return Tree(task=task, instruction="", method="chain", seed=0, steps=list(steps), ledger=Ledger())


def chains(trajectories: list[list[dict[str, Any]]]) -> Tree:
    """A tree that branches only at the root: one list of step fields per trajectory."""
    steps: list[Step] = []
    for trajectory in trajectories:
        for position, fields in enumerate(trajectory):
            steps.append(step(len(steps), len(steps) - 1 if position else None, **fields))
    return tree(*steps)


def outcomes(lengths: list[int], ends: list[Outcome], invalid: set[tuple[int, int]] = frozenset()) -> Tree:
    """Trajectories of given lengths and ends; `invalid` holds (trajectory, step) pairs."""
    return chains(
        [
            [
                {
                    "outcome": end if t == length - 1 else None,
                    "validity": Validity.MALFORMED if (i, t) in invalid else Validity.VALID,
                }
                for t in range(length)
            ]
            for i, (length, end) in enumerate(zip(lengths, ends, strict=True))
        ]
    )


def walk(states: str, end: Outcome, invalid: set[int] = frozenset()) -> list[dict[str, Any]]:
    """Step fields of a trajectory through one-letter states, the last letter being the final state."""
    moves = list(pairwise(states))
    return [
        {
            "state": here,
            "next_state": there,
            "action": f"to {there}",
            "validity": Validity.INADMISSIBLE if t in invalid else Validity.VALID,
            "outcome": end if t == len(moves) - 1 else None,
        }
        for t, (here, there) in enumerate(moves)
    ]


def advantages(credit: Credit) -> list[float | None]:
    return [row.advantage for row in credit.steps]


@st.composite
def random_trees(draw: st.DrawFn, ends: st.SearchStrategy[Outcome] | None = None, invalid: bool = True) -> Tree:
    """Forks anywhere, few states (so that they meet), errors, truncation, invalid steps, noise, tags, values, several copies at
    once; consistent state keys. Every tree that is valid can come out, single leaves and chains among them."""
    size = draw(st.integers(1, 24))
    parents: list[int | None] = [None]
    parents += [draw(st.one_of(st.none(), st.integers(0, n - 1))) for n in range(1, size)]
    inner = set(parents)
    parallel = draw(st.booleans())
    steps: list[Step] = []
    for number, parent in enumerate(parents):
        validity = draw(st.sampled_from(Validity)) if invalid else Validity.VALID
        state = "a" if parent is None else steps[parent].next_state
        action = None if validity is Validity.MALFORMED else draw(st.sampled_from(["go", "take", "look"]))
        steps.append(
            step(
                number,
                parent,
                state=state,
                next_state=state if validity is not Validity.VALID else draw(st.sampled_from("abcdef")),
                action=None if parallel else action,
                moves=draw(parallel_moves(invalid)) if parallel else [],
                tag=draw(st.sampled_from([None, "think", "planning", "explore", "reflection"])),
                validity=validity,
                reward=draw(st.sampled_from([0.0, 0.25, 1.0])),
                value=draw(st.sampled_from([0.0, 0.3, 0.7])),
                score=draw(st.sampled_from([0.0, 0.3, 0.7])),
                outcome=None if number in inner else draw(ends if ends is not None else st.sampled_from(Outcome)),
            )
        )
    return tree(*steps)


@st.composite
def parallel_moves(draw: st.DrawFn, invalid: bool) -> list[Move]:
    copies = draw(st.lists(st.integers(1, 4), unique=True, max_size=4))
    validities = st.sampled_from(Validity) if invalid else st.just(Validity.VALID)
    return [
        move(
            copy, draw(st.sampled_from(["go", "take", "look"])), draw(st.sampled_from("ab")), validity=draw(validities)
        )
        for copy in copies
    ]


OF_OUTCOMES = {name: method for name, method in METHODS.items() if name != "rare-tool"}
"""The methods that give credit for outcomes. rare-tool reads what a judge noted, which only its own trees hold."""
