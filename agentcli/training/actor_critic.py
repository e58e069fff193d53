"""Actor and critic as one module, for a single trainer and a single snapshot.

They share no weights: the gradient of the summed loss is each one's own gradient, and
each is clipped by its own norm.

The critic's losses are pure functions of tensors. Shape suffixes: B rows of a
microbatch, T padded length, R all rows, K columns whose logits are kept.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from agentcli.errors import UsageError
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic import (
    load_trainable_critic,
    save_critic,
    state_values,
)
from agentcli.training.loop.checkpoints import load_trainable, save_checkpoint
from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.forward import StepTokeniser, pad_rows, precision, scoring
from agentcli.training.loop.job import Job
from agentcli.training.objectives import RETURN, CriticOptions
from agentcli.training.policy_gradient import batches
from agentcli.training.policy_gradient.batches import Part, UpdatePlan, members_of
from agentcli.training.policy_gradient.training import RowTraining
from agentcli.training.steps import Row


def value_losses(
    values_B: Tensor,
    returns_B: Tensor,
    old_B: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """(V - R)^2 of each row (Rare-tool section 3.3).

    With `clip`, the larger of this and (V' - R)^2, where V' is V clipped to within
    `clip` of `old_B`, the value before training. A value that has already moved further
    than that towards R has no gradient.
    """
    errors_B = (values_B - returns_B).square()
    if clip is None or old_B is None:
        return errors_B
    held_B = old_B + (values_B - old_B).clamp(-clip, clip)
    return torch.maximum(errors_B, (held_B - returns_B).square())


def explained_variance(sums: dict[str, float]) -> float:
    """1 - Var(R - V) / Var(R) from the given sums; 0 if all R are equal.

    The sums are values (a count), returns, returns_squared, errors and errors_squared,
    where an error is R - V.
    """
    count = sums["values"]
    spread = sums["returns_squared"] / count - (sums["returns"] / count) ** 2
    left = sums["errors_squared"] / count - (sums["errors"] / count) ** 2
    # If the variance is only rounding error, there is nothing to explain.
    return 1 - left / spread if spread > 1e-12 else 0.0


def value_sums(
    values_B: Tensor, returns_B: Tensor, counted_B: Tensor
) -> dict[str, Tensor]:
    """The sums for `explained_variance` over one microbatch, in float64."""
    counted_B = counted_B.double()
    returns_B = returns_B.double()
    errors_B = returns_B - values_B.double()
    return {
        "values": counted_B.sum(),
        "returns": (counted_B * returns_B).sum(),
        "returns_squared": (counted_B * returns_B.square()).sum(),
        "errors": (counted_B * errors_B).sum(),
        "errors_squared": (counted_B * errors_B.square()).sum(),
    }


VALUE = "value"
"""The part of a credit with V(s) before training."""


def critic_tensors(plan: UpdatePlan, part: Part) -> dict[str, Tensor]:
    """The critic's tensors of one microbatch.

    last_B is the position of the last token of each prompt, returns_B the target,
    old_values_B the value before training, value_weights_B the share of each row in the
    mean of the update, and present_B is 0 if the row only fills an empty microbatch.
    """
    update, _ = part
    members, counted = members_of(part)
    total = sum(plan.rows[row].weight for row in update.weights)
    chosen = [plan.rows[row] for row in members]
    last = [len(plan.tokens.prompts[row]) - 1 for row in members]
    returns = [row.parts[RETURN] for row in chosen]
    values = [row.parts.get(VALUE, 0.0) for row in chosen]
    shares = [counted * row.weight / total for row in chosen]
    return {
        "last_B": torch.tensor(last),
        "returns_B": torch.tensor(returns, dtype=torch.float32),
        "old_values_B": torch.tensor(values, dtype=torch.float32),
        "value_weights_B": torch.tensor(shares, dtype=torch.float32),
        "present_B": torch.full((len(members),), counted),
    }


def values_of(
    critic: Any,
    plan: UpdatePlan,
    pad: int,
    device: torch.device,
    bf16: bool | None,
) -> Sequence[float]:
    """V of every row's prompt, without dropout; each rank computes its share."""
    prompts = plan.tokens.prompts
    processes = plan.processes
    values_R = torch.zeros(len(prompts))
    chunks = plan.tokens.chunks(range(len(prompts)), plan.limit)
    with scoring(critic), precision(device, bf16):
        # A critic is never sharded, so ranks need not run the same number of passes.
        for chunk in chunks[processes.rank :: processes.size]:
            ids_BT, _ = pad_rows([(prompts[row], []) for row in chunk], pad)
            last_B = torch.tensor([len(prompts[row]) - 1 for row in chunk])
            values_B = state_values(critic, ids_BT.to(device), last_B.to(device))
            values_R[chunk] = values_B.cpu()
    values: list[float] = sum_over_ranks(values_R.to(device), processes).tolist()
    return values


class ActorCritic(nn.Module):
    """The policy and its critic."""

    def __init__(self, actor: Any, critic: Any) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic

    @property
    def config(self) -> Any:
        return self.actor.config

    def get_output_embeddings(self) -> Any:
        return self.actor.get_output_embeddings()

    def activation_checkpointing_enable(self, **options: Any) -> None:
        """Turns on activation checkpointing for both; transformers.Trainer calls it."""
        for part in (self.actor, self.critic):
            part.activation_checkpointing_enable(**options)

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Does the same under its name before transformers 5.23."""
        for part in (self.actor, self.critic):
            part.gradient_checkpointing_enable(**options)

    def forward(
        self, input_ids: Tensor, logits_to_keep: Tensor, last_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, K, V) of the actor, and V (B,) at position `last_B`, in float32."""
        # Both in one pass: DDP sees only what runs in the forward of its module.
        output = self.actor(
            input_ids=input_ids, logits_to_keep=logits_to_keep, use_cache=False
        )
        return output.logits, state_values(self.critic, input_ids, last_B)


class Appraising:
    """Wraps an actor with critic, so that it can be called like a language model.

    `values_B` are the values of the rows in its latest call; `last_B` is the position
    of the last token of their prompts.
    """

    def __init__(self, pair: Any, last_B: Tensor) -> None:
        # Under this name `network_of` looks through the wrapper to find the head.
        self.module = pair
        self._last_B = last_B
        self.values_B = torch.zeros(0)

    def __call__(
        self, input_ids: Tensor, logits_to_keep: Tensor, use_cache: bool
    ) -> SimpleNamespace:
        logits_BKV, self.values_B = self.module(
            input_ids=input_ids, logits_to_keep=logits_to_keep, last_B=self._last_B
        )
        return SimpleNamespace(logits=logits_BKV)


class ClippedApart(TrainerCallback):
    """Clips the gradients of actor and critic separately, each by its own norm.

    The Trainer itself clips nothing (max_grad_norm 0).
    """

    def __init__(self, pair: ActorCritic, max_grad_norm: float) -> None:
        self.norms: dict[str, float] = {}
        """Gradient norms of the last update, before clipping."""
        self._pair = pair
        self._max_grad_norm = max_grad_norm

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        for name, part in self._pair.named_children():
            norm = nn.utils.clip_grad_norm_(part.parameters(), self._max_grad_norm)
            self.norms[name] = float(norm)


def load_pair(job: Job[TrainSettings], options: CriticOptions) -> ActorCritic:
    """Actor and critic at the start of the job, in float32 on the CPU.

    Both are trained in full, or through adapters of the shape of train.lora. Raises
    what `load_trainable` and `load_trainable_critic` raise.
    """
    lora = job.settings.lora
    source = job.critic or job.model
    actor = load_trainable(job.model, lora)
    critic = load_trainable_critic(source, options.head, lora, "train.options.critic")
    known = actor.get_input_embeddings().num_embeddings
    tokens = critic.get_input_embeddings().num_embeddings
    if known != tokens:
        raise UsageError(
            f"train.options.critic {source}: knows {tokens} tokens, the policy {known}; "
            "take a critic of the same model family"
        )
    return ActorCritic(actor, critic)


class PairTraining(RowTraining):
    """A training of rows for a policy and its critic, each clipped by its own norm."""

    model: ActorCritic
    clips = False

    def planned(self, rows: Sequence[Row], settings: TrainSettings) -> int:
        """Loads actor and critic and plans their updates; returns how many."""
        self.model = load_pair(self.job, self.options)
        tokenise = StepTokeniser(self.tokenizer, self.model.actor, self.job.model)
        tokens = batches.tokenise_rows(rows, tokenise)
        self.plan = batches.plan_updates(
            rows, tokens, settings, self.job.seed, self.processes, every_row=True
        )
        return len(self.plan.updates)

    def networks(self) -> tuple[Any, ...]:
        return self.model.actor, self.model.critic

    def rate_of(self, name: str) -> float:
        """The critic may have a learning rate of its own."""
        rate: float | None = None
        if name.startswith("critic."):
            rate = self.options.critic_learning_rate
        return rate or self.settings.learning_rate

    def save(self) -> None:
        """Writes checkpoint and critic."""
        job, pair = self.job, self.model
        if self.processes.main:
            save_checkpoint(pair.actor, self.tokenizer, job.out)
            if job.critic_out is not None:
                save_critic(pair.critic, self.tokenizer, job.critic_out)
