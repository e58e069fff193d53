"""The plan of a training: the rows of each update and microbatch, and their weights.

Every epoch shuffles all rows, or all trees, with its own seed and cuts them into
updates of `rows_per_update`; the last may be smaller. Rows that cannot have a gradient
remain members of their update (their weight counts in its normaliser) but are not run.
An update with only such rows is skipped: it would be an optimiser step without a
signal.

Log-probabilities under the initial model and the reference are computed once, before
the first update, at the temperature at which each row was sampled.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from agentcli.errors import UsageError
from agentcli.policies.sight import Eyesight
from agentcli.prompts.protocol import Message
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.checkpoints import is_base, load_frozen
from agentcli.training.loop.distributed import Processes, place, sum_over_ranks
from agentcli.training.loop.forward import (
    StepTokeniser,
    TokenRow,
    head_dtype,
    named_pictures,
    response_logprobs,
    scoring,
)
from agentcli.training.loop.microbatches import (
    Limit,
    Packing,
    PackingChoice,
    RowPath,
    choose_packing,
    pair_cost_of,
    paths_of,
    row_batch,
    shuffled,
    shuffled_groups,
    sort_key,
)
from agentcli.training.loop.microbatches import check_packed as check_rows
from agentcli.training.policy_gradient.losses import logprob_gap, token_weights
from agentcli.training.steps import Row

PACKING = "train.packing"
UNPACKED = PackingChoice(None, "the objective runs every row by itself")


@dataclass(slots=True)
class Tokens:
    """The tokens of all rows.

    Flat tensors hold the response tokens of row r at offsets[r]:offsets[r + 1].
    """

    prompts: list[list[int]]
    responses: list[list[int]]
    offsets: list[int]
    old: Tensor
    """Log-probabilities in the denominator of the ratio: the sampler's, or the
    trainer's own if they are recomputed.
    """
    reference: Tensor | None = None
    sampled: Tensor | None = None
    """The sampler's log-probabilities if `old` are recomputed; None: `old` are the
    sampler's.
    """
    temperature: Tensor | None = None
    """T of softmax(logits / T), the distribution that tokens were sampled from; None: 1
    for all.
    """
    sampled_temperature: Tensor | None = None
    """T of the sampler's log-probabilities; None: same as `temperature`."""
    sight: Eyesight | None = None
    """Processes the prompts of a vision model."""
    messages: list[Message] = field(default_factory=list)
    """The prompts with their pictures, for a vision model."""

    def row(self, row: int) -> TokenRow:
        """The prompt and the response of a row."""
        return self.prompts[row], self.responses[row]

    def batch(
        self, rows: Sequence[int], pad: int, packing: Packing | None
    ) -> dict[str, Tensor]:
        """The input of one forward pass over these rows (`row_batch`).

        For a vision model it includes the pictures.
        """
        batch = row_batch([self.row(row) for row in rows], pad, packing)
        if self.sight is None:
            return batch
        messages = [self.messages[row] for row in rows]
        width = batch["ids_BT"].shape[1]
        return batch | named_pictures(self.sight.tensors(messages, width))

    def gather(self, flat: Tensor, rows: Sequence[int]) -> Tensor:
        """The values (N,) of these rows' response tokens."""
        starts_and_ends = [(self.offsets[row], self.offsets[row + 1]) for row in rows]
        return torch.cat([flat[start:end] for start, end in starts_and_ends])

    def scatter(self, flat: Tensor, rows: Sequence[int], values_N: Tensor) -> None:
        """Writes the values of these rows' response tokens into `flat`."""
        start = 0
        for row in rows:
            end = start + len(self.responses[row])
            flat[self.offsets[row] : self.offsets[row + 1]] = values_N[start:end]
            start = end

    def chunks(
        self, rows: Sequence[int], limit: Limit, packing: Packing | None = None
    ) -> list[list[int]]:
        """The rows in as few chunks as the limit allows, in the order for `packing`."""
        paths = self.paths(rows, packing)
        return [
            [row for path in part for row in path.rows] for part in limit.cut(paths)
        ]

    def paths(self, rows: Iterable[int], packing: Packing | None) -> list[RowPath]:
        """The rows in the order for `packing`; those of one sequence together."""
        return paths_of(self.ordered(rows, packing), self.row, packing is not None)

    def ordered(self, rows: Iterable[int], packing: Packing | None) -> list[int]:
        """The rows sorted by length, or by their tokens if they are to be packed."""
        if packing is None:
            return sorted(rows, key=self.length)
        # Rows that begin alike become neighbours, which alone can share a prefix.
        return sorted(rows, key=lambda row: sort_key(self.row(row)))

    def length(self, row: int) -> int:
        """Prompt plus response, in tokens."""
        return len(self.prompts[row]) + len(self.responses[row])


@dataclass(slots=True)
class Update:
    """One optimiser update."""

    epoch: int
    rows: list[int]
    """All members, including those that are not run."""
    weights: dict[int, float]
    """Weight per token of each member that is run."""
    microbatches: list[list[int]]
    """Members that are run, for all ranks: microbatch m of rank r has index m * ranks +
    r. Some may be empty.
    """


@dataclass(slots=True)
class UpdatePlan:
    """All updates of a training, in order."""

    rows: Sequence[Row]
    tokens: Tokens
    updates: list[Update]
    skipped: int
    """Updates skipped because no row in them has a gradient."""
    processes: Processes
    microbatches_per_update: int
    """Microbatches per rank, the same number in every update."""
    limit: Limit
    choice: PackingChoice = UNPACKED

    @property
    def packing(self) -> Packing | None:
        """How rows share sequences; None: each row has its own."""
        return self.choice.packing

    def dealt(self) -> "UpdatePlan":
        """The plan with the rows of its updates split into microbatches."""
        tokens, limit, ranks = self.tokens, self.limit, self.processes.size
        of_updates = [tokens.paths(one.weights, self.packing) for one in self.updates]
        count, even = self.microbatches_per_update, limit.counts_rows(of_updates)
        if not even:
            count = limit.most(of_updates, ranks)
        updates = []
        for update, paths in zip(self.updates, of_updates, strict=True):
            rows = limit.dealt(paths, count * ranks, even)
            updates.append(replace(update, microbatches=rows))
        return replace(self, updates=updates, microbatches_per_update=count)

    def parts(self, done: int = 0) -> list["Part"]:
        """This rank's microbatches of all updates after the first `done`.

        Every update has the same number.
        """
        of_this_rank = slice(self.processes.rank, None, self.processes.size)
        return [
            (update, rows)
            for update in self.updates[done:]
            for rows in update.microbatches[of_this_rank]
        ]

    def packed(self, packing: Packing) -> "UpdatePlan":
        """The same updates, with rows that begin alike in the same microbatch."""
        return replace(self, choice=PackingChoice(packing)).dealt()


def plan_updates(
    rows: Sequence[Row],
    tokens: Tokens,
    settings: TrainSettings,
    seed: int,
    processes: Processes,
    every_row: bool = False,
) -> UpdatePlan:
    """Plans all updates of all epochs. Raises UsageError if no aggregation is set.

    With `every_row`, rows that cannot change the policy are run too.
    """
    if settings.aggregate is None:
        raise UsageError(
            "train.aggregate: names none here, where no method is known; set step, "
            "token or sequence"
        )
    size = settings.rows_per_update
    limit = Limit(settings.rows_per_microbatch, settings.tokens_per_microbatch)
    # The Trainer accumulates the same number of microbatches in every update, so a
    # smaller last update gets empty ones.
    count = math.ceil(min(size, len(rows)) / (limit.rows * processes.size))
    plan = UpdatePlan(rows, tokens, [], 0, processes, count, limit)
    for epoch in range(settings.epochs):
        order = _order(rows, settings, seed, epoch)
        for start in range(0, len(order), size):
            members = order[start : start + size]
            # A penalty on the KL pulls on every token, whatever its advantage.
            moves_all = every_row or settings.beta != 0
            # Weights come from all members: a row that is not run still counts in the mean.
            weights = _weights(rows, members, settings, moves_all)
            if not weights:
                plan.skipped += 1
                continue
            plan.updates.append(Update(epoch, members, weights, []))
    return plan.dealt()


def _order(
    rows: Sequence[Row], settings: TrainSettings, seed: int, epoch: int
) -> list[int]:
    """The rows in the order of an epoch: shuffled, or grouped as train.order says."""
    order = settings.order
    if order is None:
        # The steps of a conversation begin alike: together in an update, they can share
        # a sequence.
        order = "trajectories" if any(row.turns for row in rows) else "rows"
    if order == "rows":
        return shuffled(len(rows), "train rows", seed, epoch)
    if order == "trees":
        return shuffled_groups([row.tree for row in rows], "train trees", seed, epoch)
    keys = [(row.tree, row.trajectory) for row in rows]
    return shuffled_groups(keys, "train trajectories", seed, epoch)


def _weights(
    rows: Sequence[Row],
    members: list[int],
    settings: TrainSettings,
    moves_all: bool,
) -> dict[int, float]:
    """The weight per token of each member that can have a gradient.

    Without a KL penalty (`moves_all`), rows with advantage 0 have none.
    """
    assert settings.aggregate is not None
    lengths = [len(rows[member].token_ids) for member in members]
    if settings.tokens_per_response is not None:
        lengths = [settings.tokens_per_response] * len(members)
    row_weights = [rows[member].weight for member in members]
    shares = [rows[member].share for member in members]
    weights_R = token_weights(
        settings.aggregate,
        lengths_R=torch.tensor(lengths),
        weights_R=torch.tensor(row_weights),
        shares_R=torch.tensor(shares, dtype=torch.float64),
    )
    weights: dict[int, float] = {}
    for member, weight in zip(members, weights_R.tolist(), strict=True):
        if weight and (moves_all or rows[member].advantage):
            weights[member] = weight
    return weights


Part = tuple[Update, list[int]]
"""An update, and the rows of one of its microbatches."""


def members_of(part: Part) -> tuple[list[int], float]:
    """The rows of a microbatch, and the factor 1.0.

    Every rank needs a forward pass. An empty microbatch therefore repeats one row of
    its update with the factor 0.0, so that the row does not count.
    """
    update, rows = part
    return (rows, 1.0) if rows else ([next(iter(update.weights))], 0.0)


def collate(plan: UpdatePlan, pad: int, part: Part) -> dict[str, Tensor]:
    """The tensors of one microbatch.

    The input of a forward pass (`Tokens.batch`); rows_1, read_1 and run_1, the numbers
    of rows, of their tokens and of tokens that are run; for the N response tokens in
    row-major order old_N, advantages_N, weights_N and counted_N; lengths_B, the
    response tokens of each row. It also has reference_N if there is a reference,
    sampled_N if `old` is not the sampler's, temperature_N unless all are 1, and
    sampled_temperature_N if the sampler's log-probabilities have another temperature.
    """
    update, rows = part
    tokens = plan.tokens
    members, counted = members_of(part)
    lengths_B = torch.tensor([len(tokens.responses[row]) for row in members])
    advantages_B = torch.tensor([plan.rows[row].advantage for row in members])
    weights = [update.weights[row] * counted for row in members]
    # Weights are computed in float64 and used in the type of the loss.
    weights_B = torch.tensor(weights, dtype=torch.float32)
    batch = {
        **tokens.batch(members, pad, plan.packing),
        "old_N": tokens.gather(tokens.old, members),
        "lengths_B": lengths_B,
        "advantages_N": advantages_B.repeat_interleave(lengths_B),
        "weights_N": weights_B.repeat_interleave(lengths_B),
        "counted_N": torch.full((int(lengths_B.sum()),), counted),
        "rows_1": torch.tensor([len(rows)]),
        "read_1": torch.tensor([sum(map(tokens.length, rows))]),
    }
    batch["run_1"] = batch["run_1"] * counted
    for name in ("reference", "sampled", "temperature", "sampled_temperature"):
        flat = getattr(tokens, name)
        if flat is not None:
            batch[f"{name}_N"] = tokens.gather(flat, members)
    return batch


def packed_as_set(plan: UpdatePlan, settings: TrainSettings, model: Any) -> UpdatePlan:
    """The plan, packed if train.packing asks for it.

    Raises UsageError for `on` with a model that cannot be packed.
    """
    if not plan.updates:
        return plan
    packed = plan.packed(Packing(pair_cost_of(model)))
    choice = choose_packing(
        PACKING, settings.packing, model, _batches(plan), _batches(packed)
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
        check_rows(PACKING, plan.packing, model, rows, pad, device)


def tokenise_rows(rows: Sequence[Row], tokenise: StepTokeniser) -> Tokens:
    """Token ids, stored log-probabilities and temperatures of all rows.

    Raises DataError for a token that the model does not have.
    """
    prompts = []
    offsets = [0]
    logprobs: list[float] = []
    for row in rows:
        prompt, response = tokenise(
            row.message, row.token_ids, row.place, row.turns, row.prompt_ids
        )
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
        tokens.messages = [row.message for row in rows]
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

    Without a `reference` it is the model as it is now, its adapter included. One that is
    the base of the model's adapter is that model without adapter.

    Returns the gap between sampler and trainer. It is measured on the rows of the first
    update, a random sample, or on all rows if all are computed anyway. If the rollout's
    log-probabilities have another temperature, the trainer's are computed at that
    temperature.
    """
    tokens = plan.tokens
    every_row = range(len(plan.rows))
    penalised = settings.beta != 0
    # Both are the same distribution then, and one pass gives both.
    start_is_reference = penalised and reference is None
    scorer = RowScorer(plan, pad, device, settings.bf16, head_dtype(settings))

    scored: Sequence[int] = every_row[: settings.rows_per_update]
    if settings.recomputes or start_is_reference:
        scored = every_row
    elif plan.updates:
        # A random sample, which is enough to measure the gap.
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
    elif penalised and is_base(str(reference), model):
        with model.disable_adapter():
            (tokens.reference,) = scorer.score(model, every_row, [tokens.temperature])
    elif penalised:
        frozen = load_frozen(str(reference), settings.lora, settings.sharding)
        place(frozen, settings, plan.processes, device)
        # Packed as well, and it may be a model of another kind than the policy.
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
        # Each rank fills in its own rows and leaves 0 elsewhere, so a sum joins them.
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
