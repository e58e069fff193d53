"""Turns trees and credit into rows: the texts and target of every credited step."""

from pathlib import Path
from typing import Any

import torch

from agentcli.errors import DataError
from agentcli.policies.chat import step_ids
from agentcli.records.faults import shown
from agentcli.records.trees import read_with_credit
from agentcli.training.critic.options import RETURN
from agentcli.training.loop.pictures import refuse_pictures
from agentcli.training.policy_gradient.batches import Tokens
from agentcli.training.policy_gradient.rows import Row, check_numbers


def read_scored_rows(
    trees: Path, credit: Path, target: str, tokenizer: Any
) -> tuple[list[Row], Tokens]:
    """One row for every entry that has an advantage, and the token ids of its step.

    A row's part `return` is its target. Prompt and response form one sequence and are
    tokenised as text, whichever model sampled them. Raises DataError with file and line
    for credit without the target, and if no row is left.
    """
    rows = []
    texts = []
    for (line, tree), (credit_line, given) in read_with_credit(trees, credit):
        for position, entry in enumerate(given.steps):
            place = f"{credit}:{credit_line}: steps[{position}]"
            check_numbers(entry, place)
            if entry.advantage is None:
                continue
            if target not in entry.parts:
                raise DataError(
                    f"{place}: {shown(given.method)} has no part {shown(target)}; it "
                    f"has {', '.join(sorted(entry.parts))}: name one with --set "
                    "train.options.target=PART"
                )
            step = tree.steps[entry.step]
            step_place = f"{trees}:{line}: steps[{step.id}]"
            refuse_pictures(step.pictures, step_place, "a process reward model")
            row = Row(
                place=step_place,
                prompt=step.prompt,
                # A row counts as one token, whatever its length.
                token_ids=[0],
                logprobs=[0.0],
                advantage=entry.advantage,
                weight=entry.weight,
                share=1.0,
                parts={RETURN: entry.parts[target]},
                tree=line,
            )
            rows.append(row)
            texts.append(step_ids(tokenizer, step.prompt, step.response))
    if not rows:
        raise DataError(f"{credit}: no step has an advantage, so none has a target")
    empty: list[list[int]] = [[] for _ in rows]
    return rows, Tokens(texts, empty, [0] * (len(rows) + 1), torch.zeros(0))
