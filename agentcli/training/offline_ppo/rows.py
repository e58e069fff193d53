"""Turns trees and credit into rows of offline PPO: an action, its state, its reward.

The reward R_t is the part `return` of a step's credit; steps that credit masks are left
out. The action is the text of the step's note `trained`, if the exploration method
wrote one (the executed action instead of the proposed one), tokenised as for sft.
Otherwise it is the sampled response. The rollout's log-probabilities are not
read: the old ones are computed (appraisal.py).
"""

from pathlib import Path

import msgspec

from agentcli.errors import DataError
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.records.trees import read_with_credit
from agentcli.records.types import Step
from agentcli.training.critic.options import RETURN
from agentcli.training.imitation.unknown import UnknownWords
from agentcli.training.loop.pictures import refuse_pictures
from agentcli.training.policy_gradient.rows import Row, check_numbers

TRAINED = "trained"
"""The note with the text of the action to learn."""


class OfflineCounts(msgspec.Struct, kw_only=True):
    """Numbers of credit entries, by how they were used."""

    trees: int = 0
    rows: int = 0
    rows_of_notes: int = 0
    """Rows whose action is the text of a note."""
    rows_unassigned: int = 0
    """Left out: masked by the credit."""
    rows_without_tokens: int = 0
    """Left out: neither a note nor a sampled response."""


def read_offline_rows(
    trees: Path, credit: Path, chat: ChatTokens, words: UnknownWords
) -> tuple[list[Row], OfflineCounts]:
    """The rows in file order, with advantage 0 and their parts, and the counts.

    `words` counts words in notes that the tokenizer does not know. Raises DataError
    with file and line if the two files do not belong together, for credit without
    returns, for numbers that are not finite, for a greedy response, and if there is no
    row.
    """
    rows: list[Row] = []
    counts = OfflineCounts()
    for (line, tree), (credit_line, tree_credit) in read_with_credit(trees, credit):
        place = f"{credit}:{credit_line}"
        counts.trees += 1
        for position, entry in enumerate(tree_credit.steps):
            where = f"{place}: steps[{position}]"
            check_numbers(entry, where)
            if entry.advantage is None:
                counts.rows_unassigned += 1
                continue
            if RETURN not in entry.parts:
                raise DataError(
                    f"{where}.parts: there is no {RETURN!r}, which offline-ppo learns; "
                    "assign credit with --method rare-tool or ppo"
                )
            step = tree.steps[entry.step]
            step_place = f"{trees}:{line}: steps[{step.id}]"
            refuse_pictures(step.pictures, step_place, "train.objective offline-ppo")
            token_ids = _action(step, chat, words)
            if not token_ids:
                counts.rows_without_tokens += 1
                continue
            counts.rows_of_notes += TRAINED in step.notes
            row = Row(
                place=step_place,
                prompt=step.prompt,
                token_ids=token_ids,
                logprobs=[0.0] * len(token_ids),
                advantage=0.0,
                weight=entry.weight,
                share=1.0,
                temperature=_temperature(step, step_place),
                parts={RETURN: entry.parts[RETURN]},
                tree=line,
            )
            rows.append(row)
    counts.rows = len(rows)
    if not rows:
        raise DataError(
            f"{credit}: no step has both a return and an action "
            f"({counts.rows_unassigned} unassigned, {counts.rows_without_tokens} "
            "without an action); roll out more tasks, or filter less"
        )
    return rows, counts


def _action(step: Step, chat: ChatTokens, words: UnknownWords) -> list[int]:
    """Token ids of the action; empty if there is none."""
    text = step.notes.get(TRAINED)
    if isinstance(text, str) and text:
        ids = chat.answer_ids(text)
        words.add(ids, text)
        return ids
    return step.token_ids


def _temperature(step: Step, place: str) -> float:
    """The temperature of the policy that chose the action."""
    if step.temperature == 0:
        raise DataError(
            f"{place}.temperature: 0: a greedy response has no distribution to take a "
            "ratio in; sample with --temperature above 0"
        )
    return step.temperature
