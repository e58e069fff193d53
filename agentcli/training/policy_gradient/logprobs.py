"""The token side of the rows, and the log-probabilities that are computed once, before
the first update: from the model that training starts from and from the reference. All
are at the temperature that each row was sampled at.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentcli.errors import DataError
from agentcli.policies.chat import prompt_ids
from agentcli.records.settings import TrainSettings
from agentcli.training.loop.checkpoints import load_frozen
from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.forward import Scoring, response_logprobs
from agentcli.training.policy_gradient.batches import Tokens, UpdatePlan
from agentcli.training.policy_gradient.losses import logprob_gap
from agentcli.training.policy_gradient.rows import Row


def tokenise_rows(
    rows: Sequence[Row], tokenizer: Any, vocabulary: int, model: str
) -> Tokens:
    """Prompts through the chat template; responses and log-probabilities as they were
    sampled. Raises DataError for a token that `model` does not have.
    """
    prompts: dict[str, list[int]] = {}
    offsets = [0]
    for row in rows:
        if row.prompt not in prompts:
            prompts[row.prompt] = prompt_ids(tokenizer, row.prompt)
        if not 0 <= min(row.token_ids) <= max(row.token_ids) < vocabulary:
            raise DataError(
                f"{row.place}.token_ids: {max(row.token_ids)} is no token of {model} "
                f"({vocabulary} tokens); these trees were sampled from another model"
            )
        offsets.append(offsets[-1] + len(row.token_ids))
    old = torch.tensor(
        [value for row in rows for value in row.logprobs], dtype=torch.float32
    )
    temperatures = [row.temperature for row in rows]
    stored = [row.logprob_temperature for row in rows]
    return Tokens(
        [prompts[row.prompt] for row in rows],
        [row.token_ids for row in rows],
        offsets,
        old,
        temperature=per_token(rows, temperatures)
        if any(value != 1 for value in temperatures)
        else None,
        sampled_temperature=per_token(rows, stored) if stored != temperatures else None,
    )


def per_token(rows: Sequence[Row], values: Sequence[float]) -> Tensor:
    """A number of each row, for each of its response tokens."""
    return torch.tensor(values).repeat_interleave(
        torch.tensor([len(row.token_ids) for row in rows])
    )


def prepare_logprobs(
    model: Any,
    plan: UpdatePlan,
    settings: TrainSettings,
    reference: str | None,
    pad: int,
    device: torch.device,
) -> dict[str, float]:
    """Fill in old (if recomputed) and reference log-probabilities; gives the gap
    between sampler and trainer.

    The gap is measured on the rows of the first update, a random sample, or on all rows
    where all are computed anyway; where the rollout's log-probabilities are at another
    temperature, against the trainer's at that one.
    """
    tokens = plan.tokens
    everything = range(len(plan.rows))
    adapter = hasattr(model, "disable_adapter")
    own_reference = settings.beta != 0 and reference is None and not adapter
    few = (
        plan.updates[0].rows if plan.updates else everything[: settings.rows_per_update]
    )
    scored = everything if settings.recompute_logprobs or own_reference else few

    def score(
        scorer: Any, members: Sequence[int], *temperatures: Tensor | None
    ) -> list[Tensor]:
        """These rows' log-probabilities at each of these temperatures, flat, 0 in all
        other rows.
        """
        flats = [torch.zeros(tokens.old.shape) for _ in temperatures]
        chunks = tokens.chunks(members, settings.rows_per_microbatch)[
            plan.processes.rank :: plan.processes.size
        ]
        batches = (
            Scoring(*tokens.pad(chunk, pad), tokens.gathered(temperatures, chunk))
            for chunk in chunks
        )
        for chunk, scores in zip(
            chunks, response_logprobs(scorer, batches, device), strict=True
        ):
            for flat, values_N in zip(flats, scores, strict=True):
                tokens.scatter(flat, chunk, values_N)
        return [sum_over_ranks(flat.to(device), plan.processes).cpu() for flat in flats]

    if tokens.sampled_temperature is None:
        (current,) = score(model, scored, tokens.temperature)
        as_sampled = current
    else:
        current, as_sampled = score(
            model, scored, tokens.temperature, tokens.sampled_temperature
        )
    gap = logprob_gap(
        tokens.gather(as_sampled, scored), tokens.gather(tokens.old, scored)
    )
    if settings.recompute_logprobs:
        tokens.sampled, tokens.old = tokens.old, current
    if settings.beta != 0:
        if own_reference:
            tokens.reference = current
        elif reference is None:
            with model.disable_adapter():
                (tokens.reference,) = score(model, everything, tokens.temperature)
        else:
            (tokens.reference,) = score(
                load_frozen(reference, str(device)), everything, tokens.temperature
            )
    return gap
