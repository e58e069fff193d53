"""Actor and critic as one module, for a single trainer and a single snapshot.

They share no weights: the gradient of the summed loss is each one's own gradient, and
each is clipped by its own norm.

Shape suffixes: B rows, T padded length, K columns whose logits are kept.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from agentcli.errors import UsageError
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.model import (
    load_trainable_critic,
    save_critic,
    state_values,
)
from agentcli.training.loop.checkpoints import load_trainable, save_checkpoint
from agentcli.training.loop.job import Job, adamw
from agentcli.training.loop.optimizers import save_optimizer
from agentcli.training.loop.snapshots import Trained
from agentcli.training.loop.trainer import PlannedTrainer
from agentcli.training.objectives import CriticOptions
from agentcli.training.policy_gradient.training import RowTraining

CRITIC = "critic"


class ActorCritic(nn.Module):
    """The policy and its critic."""

    def __init__(self, actor: Any, critic: Any) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic

    @property
    def config(self) -> Any:
        """The configuration of the actor."""
        return self.actor.config

    def get_output_embeddings(self) -> Any:
        """The language-model head of the actor."""
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
        """Clips both gradients."""
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

    def networks(self) -> tuple[Any, ...]:
        """The policy and the critic."""
        return self.model.actor, self.model.critic

    def optimised(self, trainer: PlannedTrainer) -> Trained:
        """One optimiser, with the critic's own learning rate."""
        policy_rate = self.settings.learning_rate
        critic_rate = self.options.critic_learning_rate or policy_rate

        def rate(name: str) -> float:
            return critic_rate if name.startswith(f"{CRITIC}.") else policy_rate

        return adamw(self.job, trainer, self.model, rate)

    def save(self) -> None:
        """Writes checkpoint, critic and optimiser state."""
        job, pair = self.job, self.model
        if not self.processes.main:
            return
        save_checkpoint(pair.actor, self.tokenizer, job.out)
        if job.critic_out is not None:
            save_critic(pair.critic, self.tokenizer, job.critic_out)
        if job.optimizer_out is not None:
            save_optimizer(self.trained.optimizer, pair, job.optimizer_out)
