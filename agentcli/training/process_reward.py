"""`train` with objective process-reward: trains a new or existing model to score steps.

Its score is read at the last token of the response and learned by mean squared error:
with the default target it is the probability that a trajectory with this step succeeds,
which Wang et al. 2024 (Math-Shepherd) estimate by rollouts; here they are those of the
tree. The model becomes RUN/checkpoint, which `rollout --prm` takes.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch
from torch import Tensor

from agentcli.errors import DataError
from agentcli.policies.chat import step_ids
from agentcli.policies.load import load_tokenizer
from agentcli.prompts.recorded import message_of, whole_text
from agentcli.records.faults import shown
from agentcli.training.actor_critic import (
    critic_tensors,
    explained_variance,
    value_losses,
    value_sums,
)
from agentcli.training.critic import (
    load_trainable_critic,
    save_critic,
    state_values,
)
from agentcli.training.loop.forward import pad_rows
from agentcli.training.loop.snapshots import Facts, digest
from agentcli.training.loop.trainer import PlannedTrainer, TrainerUpdate
from agentcli.training.metrics import ProcessRewardMetrics, means_of
from agentcli.training.objectives import RETURN
from agentcli.training.policy_gradient.batches import (
    Part,
    Tokens,
    plan_updates,
)
from agentcli.training.policy_gradient.training import RowTrainer, RowTraining
from agentcli.training.steps import (
    Row,
    credited_trees,
    refuse_missing_part,
    refuse_pictures,
)


class ProcessRewardTraining(RowTraining):
    """Trains a process reward model on the credited steps of a rollout."""

    carries = False

    def rows(self, trees: Path, credit: Path) -> int:
        """Reads rows and model, and plans the updates."""
        job, options = self.job, self.options
        self.tokenizer = load_tokenizer(job.model)
        rows, tokens = read_scored_rows(trees, credit, options.target, self.tokenizer)
        self.model = load_trainable_critic(
            job.model, options.head, self.settings.lora, "policy.model"
        )
        # A step counts by its weight, whatever its length.
        by_step = msgspec.structs.replace(self.settings, aggregate="sequence")
        self.plan = plan_updates(
            rows, tokens, by_step, job.seed, self.processes, every_row=True
        )
        return len(self.plan.updates)

    def facts(self) -> Facts:
        """A hash of texts, targets and plan."""
        numbers = [(row.parts, row.weight) for row in self.plan.rows]
        return {"rows": digest(self.plan.tokens.prompts, numbers, self.order())}

    def trainer(self) -> PlannedTrainer:
        """A trainer of the model on its device."""
        arguments = self.row_arguments()
        self.model.to(arguments.device)
        return ProcessRewardTrainer(
            self.model, arguments, self.plan, self.pad, self.settings
        )

    def save(self) -> None:
        """Writes the model; it has no optimiser state to continue."""
        if self.processes.main:
            save_critic(self.model, self.tokenizer, self.job.out, reads="response")

    def statistics(self, lines: list[ProcessRewardMetrics]) -> dict[str, Any]:
        """The target, and the mean of the loss."""
        rows = self.plan.rows
        return {
            "rows": len(rows),
            "updates": len(self.plan.updates),
            "target": self.options.target,
            "target_mean": fmean(row.parts[RETURN] for row in rows),
            "means": means_of(lines, ("loss",)),
        }


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
    steps = (
        (given, each)
        for given in credited_trees(trees, credit)
        for each in given.steps()
    )
    for given, each in steps:
        entry, step = each.entry, each.step
        if entry.advantage is None:
            continue
        remedy = "name one with --set train.options.target=PART"
        place = f"{each.entry_place}: {shown(given.credit.method)}"
        refuse_missing_part(entry.parts, target, place, remedy)
        refuse_pictures(step.pictures, each.place, "a process reward model")
        row = Row(
            place=each.place,
            message=message_of(step),
            # A row counts as one token, whatever its length.
            token_ids=[0],
            logprobs=[0.0],
            advantage=entry.advantage,
            weight=entry.weight,
            share=1.0,
            parts={RETURN: entry.parts[target]},
            tree=given.line,
            trajectory=each.trajectory,
        )
        rows.append(row)
        texts.append(step_ids(tokenizer, whole_text(given.tree, step), step.response))
    if not rows:
        raise DataError(f"{credit}: no step has an advantage, so none has a target")
    # Prompt and response are one text here, so no row has response tokens.
    empty: list[list[int]] = [[] for _ in rows]
    return rows, Tokens(texts, empty, [0] * (len(rows) + 1), torch.zeros(0))


class ProcessRewardTrainer(RowTrainer):
    """Learns the targets of rows."""

    remedy = "lower train.learning_rate"
    shown = ("loss", "explained_variance")

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
        update, rows = part
        members = rows or [next(iter(update.weights))]
        texts = self._plan.tokens.prompts
        ids_BT, _ = pad_rows([(texts[row], []) for row in members], self._pad)
        return {"ids_BT": ids_BT, **critic_tensors(self._plan, part)}

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the mean squared error."""
        scores_B = state_values(model, inputs["ids_BT"], inputs["last_B"])
        targets_B = inputs["returns_B"]
        losses_B = value_losses(scores_B, targets_B)
        loss = (inputs["value_weights_B"] * losses_B).sum()
        self._sums.add(
            loss=loss.detach().double(),
            **value_sums(scores_B.detach(), targets_B, inputs["present_B"]),
        )
        return loss * self._plan.processes.size  # DDP averages gradients

    def line(self, latest: TrainerUpdate) -> ProcessRewardMetrics:
        """The metrics line of an update."""
        sums = self._sums.take(self._plan.processes)
        return ProcessRewardMetrics(
            update=latest.update,
            epoch=self._plan.updates[latest.update - 1].epoch,
            loss=sums["loss"],
            explained_variance=explained_variance(sums),
            target_mean=sums["returns"] / sums["values"],
            grad_norm=latest.grad_norm,
            learning_rate=latest.learning_rate,
            seconds=self.recorder.seconds(),
        )
