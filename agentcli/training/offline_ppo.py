"""`train` with objective offline-ppo: PPO on a fixed rollout (Rare-tool 3.3).

Before an epoch, log pi_old(a|s) and V_old(s) are computed with the current actor and
critic; A = R - V_old(s). Each update minimises beta * mean (log pi - log pi_old)^2 -
L^CLIP for the actor and mean (V - R)^2 for the critic. An epoch ends early if the mean
squared log-ratio exceeds train.options.stop_at. With `old: start`, all epochs use
pi_old and V_old from the start of training.

The reward R_t is the part `return` of a step's credit; steps that credit masks are left
out. The action is the text of the step's note `trained`, if the exploration method
wrote one (the executed action instead of the proposed one), tokenised as for sft.
Otherwise it is the sampled response. The rollout's log-probabilities are not read.

A stopped epoch skips whole updates of the plan. Updates keep their numbers in the plan,
so that a resumed training finds its place. Batches name their rows, and old values are
looked up when the loss is computed: the data loader fetches one batch ahead, which may
belong to the next epoch.

An action is a whole response: log pi(a|s) is the sum over its tokens, at the
temperature at which it was sampled. Shape suffixes: B actions, N response tokens.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import TrainingArguments

from agentcli.errors import DataError
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.load import configured_ends, load_tokenizer
from agentcli.prompts.recorded import message_of, turns_before
from agentcli.records.files import derive_seed
from agentcli.records.regular import refuse_irregular
from agentcli.records.training_settings import TrainSettings
from agentcli.records.types import Step
from agentcli.training import actor_critic
from agentcli.training.demonstrations import UnknownWords
from agentcli.training.loop.checkpoints import write_tensors
from agentcli.training.loop.forward import target_scores
from agentcli.training.loop.snapshots import Facts, digest, naming_damage
from agentcli.training.loop.trainer import PlannedTrainer, TrainerUpdate
from agentcli.training.metrics import OfflinePpoMetrics, means_of
from agentcli.training.objectives import RETURN, OfflinePpoOptions
from agentcli.training.policy_gradient.batches import (
    Part,
    RowScorer,
    UpdatePlan,
    members_of,
)
from agentcli.training.policy_gradient.losses import (
    bounded_ratios,
    entropies_look,
    row_sums,
)
from agentcli.training.policy_gradient.training import RowTrainer
from agentcli.training.steps import (
    CreditedStep,
    Row,
    TreeAndCredit,
    credited_trees,
    refuse_greedy,
    refuse_missing_part,
    refuse_pictures,
)

TRAINED = "trained"
"""The note with the text of the action to learn."""
STOPPED = "stopped epochs"
"""A counter that survives a kill: epochs up to the last one that was stopped early."""
AVERAGED = (
    *("loss", "surrogate", "squared_log_ratio", "entropy", "clip_fraction"),
    *("advantage_mean", "value_loss", "explained_variance"),
    *("grad_norm", "critic_grad_norm"),
)
"""The metrics whose means are in the manifest."""


class OfflinePpoTraining(actor_critic.PairTraining):
    """Trains actor and critic on the credited rows of a rollout."""

    def rows(self, trees: Path, credit: Path) -> int:
        """Reads rows, actor and critic, and plans the updates."""
        job = self.job
        self.tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
        self.words = UnknownWords(self.tokenizer)
        ends = configured_ends(job.model)
        chat = ChatTokens(self.tokenizer, ends, max_prompt_tokens=0)
        rows, self.counts = read_offline_rows(trees, credit, chat, self.words)
        most = self.options.most_rows
        if most is not None and most < len(rows):
            self.counts.rows_not_drawn = len(rows) - most
            self.counts.rows = most
            rows = drawn(rows, most, job.seed)
        self.words.warn("the actions to learn", job.model)
        # An action counts by its weight, whatever its length.
        by_action = msgspec.structs.replace(self.settings, aggregate="sequence")
        return self.planned(rows, by_action)

    def facts(self) -> Facts:
        """Hashes of rows and plan, and when the old models are taken."""
        tokens = self.plan.tokens
        numbers = [(row.parts, row.weight, row.temperature) for row in self.plan.rows]
        rows = digest(tokens.prompts, tokens.responses, numbers, self.order())
        return {"old": self.options.old, "rows": rows}

    def trainer(self) -> PlannedTrainer:
        """Computes the old log-probabilities and values of the first epoch."""
        arguments = self.row_arguments()
        device = arguments.device
        self.model.to(device)
        scorer = RowScorer(self.plan, self.pad, device, self.settings.bf16)
        appraisal = Appraisal(
            self.model, self.plan, scorer, self.job.snapshot, self.identity
        )
        # No snapshot is restored yet, so these are the models that training starts
        # from, also where it resumes.
        appraisal.compute()
        return OfflinePpoTrainer(
            self.model, arguments, appraisal, self.settings, self.options
        )

    def statistics(self, lines: list[OfflinePpoMetrics]) -> dict[str, Any]:
        """The counts of rows, the stopped epochs, and the means of the metrics."""
        return {
            **msgspec.structs.asdict(self.counts),
            "updates": len(lines),
            "updates_left_out": len(self.plan.updates) - len(lines),
            "epochs_stopped": sum(line.stopped for line in lines),
            "tokens": sum(line.tokens for line in lines),
            "temperatures": sorted({row.temperature for row in self.plan.rows}),
            "means": means_of(lines, AVERAGED),
            "unknown_tokens": self.words.unknown,
            "unknown_words": self.words.frequent(),
            "updates_before": self.trained.updates_before,
        }


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
    rows_not_drawn: int = 0
    """Left out: more than train.options.most_rows."""


def drawn(rows: Sequence[Row], most: int, seed: int) -> list[Row]:
    """`most` of the rows, in their order, each as likely as any other."""
    rng = random.Random(derive_seed(seed, "most_rows"))
    places = sorted(rng.sample(range(len(rows)), most))
    return [rows[place] for place in places]


def read_offline_rows(
    trees: Path, credit: Path, chat: ChatTokens, words: UnknownWords
) -> tuple[list[Row], OfflineCounts]:
    """The rows in file order, with advantage 0 and their parts, and the counts.

    `words` counts words in notes that the tokenizer does not know. Raises DataError
    with file and line if the two files do not belong together, for credit without
    returns, for a greedy response, and if there is no row.
    """
    rows: list[Row] = []
    counts = OfflineCounts()
    for given in credited_trees(trees, credit):
        counts.trees += 1
        for each in given.steps():
            row = _row(given, each, chat, words, counts)
            if row is not None:
                rows.append(row)
    counts.rows = len(rows)
    if not rows:
        raise DataError(
            f"{credit}: no step has both a return and an action "
            f"({counts.rows_unassigned} unassigned, {counts.rows_without_tokens} "
            "without an action); roll out more tasks, or filter less"
        )
    return rows, counts


def _row(
    given: TreeAndCredit,
    each: CreditedStep,
    chat: ChatTokens,
    words: UnknownWords,
    counts: OfflineCounts,
) -> Row | None:
    """The row of a step, or None if it is only counted."""
    entry, step = each.entry, each.step
    if entry.advantage is None:
        counts.rows_unassigned += 1
        return None
    remedy = "assign credit with --method rare-tool or ppo"
    refuse_missing_part(entry.parts, RETURN, f"{each.entry_place}.parts", remedy)
    refuse_pictures(step.pictures, each.place, "train.objective offline-ppo")
    token_ids = _action(step, chat, words)
    if not token_ids:
        counts.rows_without_tokens += 1
        return None
    counts.rows_of_notes += TRAINED in step.notes
    refuse_greedy(step, each.place)
    return Row(
        place=each.place,
        message=message_of(step),
        turns=turns_before(given.tree, step),
        token_ids=token_ids,
        # Both are the appraisal's: it knows the old models of each epoch.
        logprobs=[0.0] * len(token_ids),
        advantage=0.0,
        weight=entry.weight,
        share=1.0,
        temperature=step.temperature,
        parts={RETURN: entry.parts[RETURN]},
        tree=given.line,
        trajectory=each.trajectory,
        prompt_ids=step.prompt_ids or None,
    )


def _action(step: Step, chat: ChatTokens, words: UnknownWords) -> list[int]:
    """Token ids of the action; empty if there is none."""
    text = step.notes.get(TRAINED)
    if isinstance(text, str) and text:
        ids = chat.answer_ids(text)
        words.add(ids, text)
        return ids
    return step.token_ids


class ActionLosses(NamedTuple):
    """The terms of the loss, per action; all (B,)."""

    loss_B: Tensor
    """-surrogate + beta * squared: the terms of eq. 1, whose sum is minimised."""
    surrogate_B: Tensor
    """min(ratio * A, clip(ratio) * A), L^CLIP."""
    squared_B: Tensor
    """(log pi - log pi_old)^2, eq. 2."""
    ratio_B: Tensor
    """pi / pi_old of the action."""
    clipped_B: Tensor
    """bool: clipping removes the gradient of the surrogate."""


def action_losses(
    logprobs_B: Tensor,
    old_B: Tensor,
    advantages_B: Tensor,
    clip: float,
    beta: float,
) -> ActionLosses:
    """The clipped surrogate with the squared log-ratio as a penalty (Rare-tool eq. 1 and 2).

    The paper prints L^CLIP + beta L_KL, although one term should be large and the other
    small. Here the surrogate is maximised and the penalty is minimised.
    """
    # Sums over the tokens of an action: the ratio is of whole responses, not of tokens.
    difference_B = logprobs_B - old_B
    ratio_B = bounded_ratios(difference_B, advantages_B)
    clamped_B = ratio_B.clamp(1 - clip, 1 + clip)
    surrogate_B = torch.minimum(ratio_B * advantages_B, clamped_B * advantages_B)
    risen_B = (advantages_B > 0) & (ratio_B > 1 + clip)
    fallen_B = (advantages_B < 0) & (ratio_B < 1 - clip)
    squared_B = difference_B.square()
    loss_B = beta * squared_B - surrogate_B
    return ActionLosses(loss_B, surrogate_B, squared_B, ratio_B, risen_B | fallen_B)


@dataclass
class Appraisal:
    """The old log-probabilities and values that the losses use in epoch `epoch`.

    `folder` is the folder of the snapshot; with None nothing is stored. Only files with
    the same `facts` are read.
    """

    pair: actor_critic.ActorCritic
    plan: UpdatePlan
    scorer: RowScorer
    folder: Path | None
    facts: Facts
    epoch: int = 0
    values: Tensor = field(default_factory=lambda: torch.zeros(0))
    """V_old of every row."""

    def begin(self, epoch: int) -> None:
        """Takes the current models as the old ones, or reads stored results.

        Raises WriteError, and DataError for a damaged file.
        """
        self.epoch = epoch
        path = self.folder / f"old-{epoch}.safetensors" if self.folder else None
        if path is not None and self._read(path):
            return
        self.compute()
        if path is not None and self.plan.processes.main:
            tensors = {"logprobs": self.plan.tokens.old, "values": self.values}
            write_tensors(path, tensors, {"facts": json.dumps(self.facts)})

    def compute(self) -> None:
        """Computes log pi_old and V_old of all rows with the current models."""
        plan, scorer = self.plan, self.scorer
        tokens = plan.tokens
        every_row = range(len(plan.rows))
        (tokens.old,) = scorer.score(self.pair.actor, every_row, [tokens.temperature])
        values = actor_critic.values_of(
            self.pair.critic,
            plan,
            scorer.pad,
            scorer.device,
            scorer.bf16,
        )
        self.values = torch.tensor(values)

    def advantages(self, rows: list[int]) -> Tensor:
        """A_t = R_t - V_old(s_t) (B,) of these rows (Rare-tool section 3.3)."""
        returns = [self.plan.rows[row].parts[RETURN] for row in rows]
        return torch.tensor(returns) - self.values[rows]

    def _read(self, path: Path) -> bool:
        """Loads the file if it belongs to this training; returns whether it did."""
        refuse_irregular(path)
        if not path.exists():
            return False
        with naming_damage(path), safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", ""))
            if facts != self.facts:
                return False
            self.plan.tokens.old = file.get_tensor("logprobs")
            self.values = file.get_tensor("values")
        return True


class OfflinePpoTrainer(RowTrainer):
    """Learns from the old values of an appraisal."""

    remedy = "lower train.learning_rate or train.options.critic_learning_rate"
    finite = ("loss", "squared_log_ratio", "value_loss")
    shown = ("loss", "squared_log_ratio", "value_loss")

    def __init__(
        self,
        pair: actor_critic.ActorCritic,
        args: TrainingArguments,
        appraisal: Appraisal,
        settings: TrainSettings,
        options: OfflinePpoOptions,
    ) -> None:
        super().__init__(pair, args, appraisal.plan, appraisal.scorer.pad, settings)
        self._appraisal = appraisal
        self._options = options
        self._fetched: int | None = None
        """Number of the update whose microbatches were fetched last."""
        self._clipped = actor_critic.ClippedApart(pair, settings.max_grad_norm)
        self.add_callback(self._clipped)

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
        members, _ = members_of(part)
        return {
            **super().collate(part),
            **actor_critic.critic_tensors(self._plan, part),
            "members_B": torch.tensor(members),
        }

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """The microbatches of the next update whose epoch has not been stopped."""
        while True:
            batches, items = super().get_batch_samples(*args, **kwargs)
            if not batches:
                return batches, items
            # The Trainer counts only updates that it made; here those of the plan are counted.
            place = self.recorder.done if self._fetched is None else self._fetched
            self._fetched = place + 1
            epoch = self._plan.updates[place].epoch
            if epoch < self.recorder.counters.get(STOPPED, 0):
                continue
            if self._options.old == "epoch" and epoch > self._appraisal.epoch:
                self._appraisal.begin(epoch)
            return batches, items

    def update_number(self) -> int:
        """The number of the latest update in the plan."""
        assert self._fetched is not None
        return self._fetched

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the losses of actor and critic."""
        appraising = actor_critic.Appraising(model, inputs["last_B"])
        temperatures_N = inputs.get("temperature_N")
        looks = [entropies_look(temperatures_N)]
        scores = target_scores(appraising, inputs, temperatures_N, looks)
        logprobs_N, (entropies_N,) = scores
        lengths_B = inputs["lengths_B"]
        members = inputs["members_B"].tolist()
        tokens = self._plan.tokens
        old_N = tokens.gather(tokens.old, members).to(logprobs_N.device)
        advantages_B = self._appraisal.advantages(members).to(logprobs_N.device)
        losses = action_losses(
            logprobs_B=row_sums(logprobs_N, lengths_B),
            old_B=row_sums(old_N, lengths_B),
            advantages_B=advantages_B,
            clip=self._settings.clip,
            beta=self._options.beta,
        )
        values_B = appraising.values_B
        value_losses_B = actor_critic.value_losses(values_B, inputs["returns_B"])
        weights_B = inputs["value_weights_B"]
        inputs["advantages_B"] = advantages_B
        self._record(losses, value_losses_B, values_B.detach(), entropies_N, inputs)
        loss = (weights_B * (losses.loss_B + value_losses_B)).sum()
        return loss * self._plan.processes.size  # DDP averages gradients

    @torch.no_grad()
    def _record(
        self,
        losses: ActionLosses,
        value_losses_B: Tensor,
        values_B: Tensor,
        entropies_N: Tensor,
        inputs: dict[str, Tensor],
    ) -> None:
        """Adds one microbatch to the running metrics."""
        weights_B = inputs["value_weights_B"].double()
        counted_N = inputs["counted_N"].double()
        self._sums.add(
            loss=(weights_B * losses.loss_B).sum(),
            surrogate=(weights_B * losses.surrogate_B).sum(),
            squared=(weights_B * losses.squared_B).sum(),
            clipped=(weights_B * losses.clipped_B).sum(),
            ratio=(weights_B * losses.ratio_B).sum(),
            advantage=(weights_B * inputs["advantages_B"]).sum(),
            value_loss=(weights_B * value_losses_B).sum(),
            entropy=(counted_N * entropies_N).sum(),
            tokens=counted_N.sum(),
            rows=inputs["rows_1"].sum().double(),
            **actor_critic.value_sums(
                values_B, inputs["returns_B"], inputs["present_B"]
            ),
        )

    def line(self, latest: TrainerUpdate) -> OfflinePpoMetrics:
        """The metrics line of an update; ends the epoch if the update went too far."""
        epoch = self._plan.updates[latest.update - 1].epoch
        sums = self._sums.take(self._plan.processes)
        # The sums are over all ranks, so all of them stop at the same update.
        stopped = sums["squared"] > self._options.stop_at
        if stopped:
            self.recorder.counters[STOPPED] = epoch + 1
        return OfflinePpoMetrics(
            update=latest.update,
            epoch=epoch,
            loss=sums["loss"],
            surrogate=sums["surrogate"],
            squared_log_ratio=sums["squared"],
            entropy=sums["entropy"] / sums["tokens"],
            clip_fraction=sums["clipped"],
            ratio_mean=sums["ratio"],
            value_loss=sums["value_loss"],
            explained_variance=actor_critic.explained_variance(sums),
            return_mean=sums["returns"] / sums["values"],
            advantage_mean=sums["advantage"],
            stopped=stopped,
            grad_norm=self._clipped.norms["actor"],
            critic_grad_norm=self._clipped.norms["critic"],
            learning_rate=latest.learning_rate,
            rows=int(sums["rows"]),
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )
