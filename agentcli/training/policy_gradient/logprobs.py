"""Tokenises rows and computes log-probabilities once, before the first update.

These are the log-probabilities under the initial model and the reference, at the
temperature at which each row was sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentcli.prompts.protocol import Message
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.checkpoints import is_base, load_frozen
from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.forward import (
    StepTokeniser,
    head_dtype,
    response_logprobs,
    scoring,
)
from agentcli.training.loop.sharding import place
from agentcli.training.policy_gradient.batches import Tokens, UpdatePlan, check_packed
from agentcli.training.policy_gradient.losses import logprob_gap
from agentcli.training.steps import Row


def tokenise_rows(rows: Sequence[Row], tokenise: StepTokeniser) -> Tokens:
    """Token ids, stored log-probabilities and temperatures of all rows.

    Raises DataError for a token that the model does not have.
    """
    prompts = []
    offsets = [0]
    logprobs: list[float] = []
    for row in rows:
        prompt, response = tokenise(row.prompt, row.token_ids, row.place, row.pictures)
        prompts.append(prompt)
        logprobs.extend(row.logprobs)
        offsets.append(offsets[-1] + len(response))
    tokens = Tokens(
        prompts=prompts,
        responses=[row.token_ids for row in rows],
        offsets=offsets,
        old=torch.tensor(logprobs, dtype=torch.float32),
        sight=tokenise.sight,
    )
    if tokens.sight is not None:
        tokens.messages = [Message((row.prompt, *row.pictures)) for row in rows]
    lengths_R = torch.tensor([len(row.token_ids) for row in rows])
    temperatures = [row.temperature for row in rows]
    stored_temperatures = [row.logprob_temperature for row in rows]
    if any(temperature != 1 for temperature in temperatures):
        tokens.temperature = torch.tensor(temperatures).repeat_interleave(lengths_R)
    if stored_temperatures != temperatures:
        stored_R = torch.tensor(stored_temperatures)
        tokens.sampled_temperature = stored_R.repeat_interleave(lengths_R)
    return tokens


def prepare_logprobs(
    model: Any,
    plan: UpdatePlan,
    settings: TrainSettings,
    reference: str | None,
    pad: int,
    device: torch.device,
) -> dict[str, float]:
    """Computes the plan's reference and, if recomputed, old log-probabilities.

    A reference that is the base of the model's adapter is that model without adapter.
    Returns the gap between sampler and trainer. It is measured on the rows of the first
    update, a random sample, or on all rows if all are computed anyway. If the rollout's
    log-probabilities have another temperature, the trainer's are computed at that
    temperature.
    """
    tokens = plan.tokens
    every_row = range(len(plan.rows))
    penalised = settings.beta != 0
    shared = is_base(reference, model)
    start_is_reference = penalised and reference is None and not shared
    scorer = RowScorer(plan, pad, device, settings.bf16, head_dtype(settings))

    # The first update is a random sample, which is enough to measure the gap.
    scored: Sequence[int] = every_row[: settings.rows_per_update]
    if settings.recomputes or start_is_reference:
        scored = every_row
    elif plan.updates:
        scored = plan.updates[0].rows
    temperatures = [tokens.temperature]
    if tokens.sampled_temperature is not None:
        temperatures.append(tokens.sampled_temperature)
    scores = scorer.score(model, scored, temperatures)
    current = scores[0]
    as_sampled = scores[-1]
    gap = logprob_gap(
        tokens.gather(as_sampled, scored), tokens.gather(tokens.old, scored)
    )

    if settings.recomputes:
        tokens.sampled = tokens.old
        tokens.old = current
    if start_is_reference:
        tokens.reference = current
    elif penalised and shared:
        with model.disable_adapter():
            (tokens.reference,) = scorer.score(model, every_row, [tokens.temperature])
    elif penalised:
        frozen = load_frozen(str(reference))
        place(frozen, settings, plan.processes, device)
        check_packed(plan, frozen, pad, device)
        (tokens.reference,) = scorer.score(frozen, every_row, [tokens.temperature])
    return gap


@dataclass(frozen=True)
class RowScorer:
    """Computes log-probabilities of rows; each rank computes its share."""

    plan: UpdatePlan
    pad: int
    device: torch.device
    bf16: bool | None
    head_dtype: torch.dtype | None = None

    def score(
        self,
        model: Any,
        rows: Sequence[int],
        temperatures: Sequence[Tensor | None],
    ) -> list[Tensor]:
        """Log-probabilities of these rows at each temperature, flat; 0 for others."""
        tokens = self.plan.tokens
        processes = self.plan.processes
        flats = [torch.zeros(tokens.old.shape) for _ in temperatures]
        packing = self.plan.packing
        chunks = tokens.chunks(rows, self.plan.limit, packing)
        with scoring(model):
            for start in range(0, len(chunks), processes.size):
                # A pass of a sharded model needs all processes: one with nothing left
                # to score repeats a chunk.
                turn = start + processes.rank
                chunk = chunks[turn % len(chunks)]
                batch = tokens.batch(chunk, self.pad, packing)
                chunk_temperatures = [
                    None if flat is None else tokens.gather(flat, chunk)
                    for flat in temperatures
                ]
                scores = response_logprobs(
                    model,
                    batch,
                    chunk_temperatures,
                    self.device,
                    self.bf16,
                    self.head_dtype,
                )
                if turn >= len(chunks):
                    continue
                for flat, scores_N in zip(flats, scores, strict=True):
                    tokens.scatter(flat, chunk, scores_N)
        return [sum_over_ranks(flat.to(self.device), processes).cpu() for flat in flats]
