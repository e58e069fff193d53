"""`train` with objective ppo: policy gradient with a critic (Schulman et al. 2017).

The policy's side is that of `policy_gradient/`: rows, plan, loss and metrics. The
critic learns the part `return` of the credit (A + V of the rollout's critic) by mean
squared error, on the same rows in the same updates. Therefore rows that cannot change
the policy are run too, for the critic.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from torch import Tensor
from transformers import TrainingArguments

from agentcli.policies.load import load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.training import actor_critic
from agentcli.training.loop.snapshots import Facts, digest
from agentcli.training.loop.trainer import PlannedTrainer, RunningFigures, TrainerUpdate
from agentcli.training.metrics import PolicyFigures, PpoMetrics, means_of
from agentcli.training.objectives import RETURN, PpoOptions
from agentcli.training.policy_gradient.batches import Part, UpdatePlan
from agentcli.training.policy_gradient.training import (
    PolicyTrainer,
    PolicyTraining,
    credited_rows,
)
from agentcli.training.steps import Row, refuse_missing_part

OF_CRITIC = ("value_loss", "explained_variance", "critic_grad_norm")
"""The critic's metrics whose means are in the manifest."""
SMALLEST_SPREAD = 1e-4
"""Advantages with a smaller standard deviation are rounding noise and are not scaled.
"""


class PpoTraining(actor_critic.PairTraining, PolicyTraining):
    """Trains policy and critic on the credited rows of a rollout."""

    def rows(self, trees: Path, credit: Path) -> int:
        """Reads rows, policy and critic. Raises DataError for credit without returns."""
        job, settings = self.job, self.settings
        rows, self.counts = credited_rows(trees, credit, settings)
        for row in rows:
            place = f"{credit}: {row.place}"
            remedy = "assign credit with --method ppo"
            refuse_missing_part(row.parts, RETURN, place, remedy)
            if self.options.value_clip is not None:
                refuse_missing_part(row.parts, actor_critic.VALUE, place, remedy)
        if self.options.whiten:
            rows = whitened(rows)
        self.tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
        return self.planned(rows, settings)

    def facts(self) -> Facts:
        """Hashes of rows, plan and returns."""
        returns = digest([row.parts for row in self.plan.rows])
        return {**super().facts(), "returns": returns}

    def trainer(self) -> PlannedTrainer:
        """Computes the policy's log-probabilities before the first update."""
        arguments = self.row_arguments()
        self.model.to(arguments.device)
        self.measure(self.model.actor, arguments.device)
        return PpoTrainer(
            self.model, arguments, self.plan, self.pad, self.settings, self.options
        )

    def statistics(self, lines: Sequence[PolicyFigures]) -> dict[str, Any]:
        """The policy's statistics, and the means of the critic's metrics."""
        statistics = super().statistics(lines)
        last = {
            name: statistics.pop(name) for name in ("updates_before", "logprob_gap")
        }
        return {**statistics, "critic": means_of(lines, OF_CRITIC), **last}


def whitened(rows: list[Row]) -> list[Row]:
    """The rows with advantages of mean 0 and standard deviation 1 (ddof 0)."""
    advantages = [row.advantage for row in rows]
    mean = fmean(advantages)
    spread = pstdev(advantages)
    # Rows whose advantages are equal would otherwise be scaled up from rounding noise.
    if spread < SMALLEST_SPREAD:
        spread = 1.0
    return [replace(row, advantage=(row.advantage - mean) / spread) for row in rows]


class PpoTrainer(PolicyTrainer):
    """Runs a plan for policy and critic."""

    finite = ("loss", "ratio_max", "value_loss")
    shown = ("loss", "entropy", "value_loss", "explained_variance")

    def __init__(
        self,
        pair: actor_critic.ActorCritic,
        args: TrainingArguments,
        plan: UpdatePlan,
        pad: int,
        settings: TrainSettings,
        options: PpoOptions,
    ) -> None:
        super().__init__(pair, args, plan, pad, settings)
        self._value_clip = options.value_clip
        self._value_sums = RunningFigures(args.device)
        self._clipped = actor_critic.ClippedApart(pair, settings.max_grad_norm)
        self.add_callback(self._clipped)

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of a policy-gradient microbatch, and those of the critic."""
        return super().collate(part) | actor_critic.critic_tensors(self._plan, part)

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the losses of policy and critic."""
        appraising = actor_critic.Appraising(model, inputs["last_B"])
        policy_loss = super().compute_loss(appraising, inputs)
        losses_B = actor_critic.value_losses(
            appraising.values_B,
            inputs["returns_B"],
            inputs["old_values_B"],
            self._value_clip,
        )
        value_loss = (inputs["value_weights_B"] * losses_B).sum()
        values_B = appraising.values_B.detach()
        self._value_sums.add(
            loss=value_loss.detach().double(),
            **actor_critic.value_sums(
                values_B, inputs["returns_B"], inputs["present_B"]
            ),
        )
        # The policy's loss has this factor already: DDP averages gradients.
        return policy_loss + value_loss * self._plan.processes.size

    def line(self, latest: TrainerUpdate) -> PpoMetrics:
        """The metrics line of an update."""
        norms = self._clipped.norms
        policy = self.figures(latest._replace(grad_norm=norms["actor"]))
        sums = self._value_sums.take(self._plan.processes)
        return PpoMetrics(
            **policy,
            value_loss=sums["loss"],
            explained_variance=actor_critic.explained_variance(sums),
            return_mean=sums["returns"] / sums["values"],
            critic_grad_norm=norms["critic"],
            seconds=self.recorder.seconds(),
        )
