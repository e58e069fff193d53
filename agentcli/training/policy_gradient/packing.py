"""Decides whether rows of a plan share sequences (train.packing), and checks it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop import packing_choice
from agentcli.training.loop.forward import TokenRow
from agentcli.training.loop.packing import Packing
from agentcli.training.policy_gradient.batches import UpdatePlan

SETTING = "train.packing"


def packed_as_set(plan: UpdatePlan, settings: TrainSettings, model: Any) -> UpdatePlan:
    """The plan, packed if train.packing asks for it.

    Raises UsageError for `on` with a model that cannot be packed.
    """
    if not plan.updates:
        return plan
    packed = plan.packed(Packing(packing_choice.pair_cost_of(model)))
    choice = packing_choice.choose_packing(
        SETTING, settings.packing, model, _batches(plan), _batches(packed)
    )
    return packed if choice.packing else replace(plan, choice=choice)


def _batches(plan: UpdatePlan) -> Iterator[Sequence[TokenRow]]:
    for update in plan.updates:
        for rows in update.microbatches:
            yield [plan.tokens.row(row) for row in rows]


def check_packed(plan: UpdatePlan, model: Any, pad: int, device: torch.device) -> None:
    """Raises AgentCliError if packing changes the log-probabilities of rows."""
    if plan.packing is not None:
        rows = next(_batches(plan))
        packing_choice.check_packed(SETTING, plan.packing, model, rows, pad, device)
