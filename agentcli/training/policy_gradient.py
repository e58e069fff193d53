"""`train`: one clipped policy-gradient pass over the rows of a rollout.

The trainer knows no method: rows and their advantages come from files (`rows.py`), which of them are run when and with which
weight is planned beforehand (`batches.py`), the loss is a pure function (`losses.py`), and the loop is transformers.Trainer's
(`policy_trainer.py`). The checkpoint and the optimiser state are written last.
"""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import TrainingArguments, set_seed

from agentcli.errors import DataError, UsageError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import load_tokenizer
from agentcli.records.files import RecordWriter
from agentcli.records.settings import TrainSettings
from agentcli.training.arguments import trainer_arguments, trainer_seed
from agentcli.training.batches import Plan, Tokens, plan_updates
from agentcli.training.checkpoints import load_frozen, load_trainable, save_checkpoint
from agentcli.training.distributed import announced_world, check_world, sum_over_ranks, wait_for_all
from agentcli.training.forward import response_logprobs
from agentcli.training.losses import logprob_gap
from agentcli.training.metrics import Progress, TrainMetrics
from agentcli.training.optimizer_state import load_optimizer, save_optimizer
from agentcli.training.policy_trainer import PolicyTrainer
from agentcli.training.rows import Row, RowCounts, read_rows


def train_policy(
    trees: Path,
    credit: Path,
    model_dir: str,
    out: Path,
    settings: TrainSettings,
    seed: int,
    metrics: Path,
    reference: str | None = None,
    optimizer_in: Path | None = None,
    optimizer_out: Path | None = None,
    progress: Progress | None = None,
    ready: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Train `model_dir` on the credited rows of `trees` and write a checkpoint (or adapter) directory to `out`.

    `reference` is only loaded if settings.beta is not 0; None means the model that training starts from, for LoRA the base
    model without its adapter. `optimizer_in` and `optimizer_out` are safetensors files. settings.credit, .reference and
    .carry_optimizer say how the caller chose these arguments and are not read here. `ready` is called when everything has been
    read and checked, before anything is written.

    The same inputs and seed give bit-identical weights on one machine with one thread count. Under torchrun every rank
    calls this and the first one writes.

    Returns the statistics of the manifest. Raises DataError for files that do not fit together or hold nothing to train on,
    UsageError for settings that cannot take effect, AgentCliError when the loss stops being finite.
    """
    _check(settings)
    world = announced_world()
    rows, counts = read_rows(trees, credit)
    if not rows:
        raise DataError(f"{credit}: no step has both an advantage and sampled tokens ({counts.unassigned} unassigned)")
    set_seed(trainer_seed(seed))
    tokenizer = load_tokenizer(model_dir)
    model = load_trainable(model_dir, settings.lora, "cpu")
    tokens = _tokenise(rows, tokenizer, model.get_input_embeddings().num_embeddings, model_dir)
    plan = plan_updates(rows, tokens, settings, seed, world)
    pad = tokenizer.pad_token_id or 0
    with tempfile.TemporaryDirectory(prefix="agentcli-train-") as scratch:
        arguments = _arguments(Path(scratch), settings, seed, plan)
        check_world(world, arguments.world_size)
        gap = _prepare_logprobs(model.to(arguments.device), plan, settings, reference, pad, arguments.device)
        use_cache = model.config.use_cache
        trainer = PolicyTrainer(model, arguments, plan, pad, settings, progress)
        optimizer, done = _optimizer(trainer, model, settings, optimizer_in)
        if ready is not None and world.main:
            ready()
        with _writer(metrics, world.main) as trainer.writer:
            if plan.updates:
                trainer.train()
        model.config.use_cache = use_cache  # Trainer turns it off, and the checkpoint is there to generate
    if world.main:
        save_checkpoint(model, tokenizer, out)
        if optimizer_out is not None:
            save_optimizer(optimizer, model, optimizer_out)
    wait_for_all(world)
    return _statistics(plan, counts, gap, trainer.written, done)


def _check(settings: TrainSettings) -> None:
    for name in ("epochs", "rows_per_update", "rows_per_microbatch"):
        if getattr(settings, name) < 1:
            raise UsageError(f"train.{name}: {getattr(settings, name)}, must be at least 1")
    for name in ("clip", "beta", "learning_rate", "warmup_updates"):
        if not getattr(settings, name) >= 0:
            raise UsageError(f"train.{name}: {getattr(settings, name)}, must not be negative")


def _tokenise(rows: Sequence[Row], tokenizer: Any, vocabulary: int, model: str) -> Tokens:
    prompts: dict[str, list[int]] = {}
    offsets = [0]
    for row in rows:
        if row.prompt not in prompts:
            prompts[row.prompt] = prompt_ids(tokenizer, row.prompt)
        if not 0 <= min(row.token_ids) <= max(row.token_ids) < vocabulary:
            raise DataError(
                f"{row.place}.token_ids: {max(row.token_ids)} is no token of {model} ({vocabulary} tokens); these trees were "
                "sampled from another model"
            )
        offsets.append(offsets[-1] + len(row.token_ids))
    old = torch.tensor([value for row in rows for value in row.logprobs], dtype=torch.float32)
    return Tokens([prompts[row.prompt] for row in rows], [row.token_ids for row in rows], offsets, old)


def _arguments(scratch: Path, settings: TrainSettings, seed: int, plan: Plan) -> TrainingArguments:
    return trainer_arguments(
        TrainingArguments,
        scratch,
        seed,
        num_train_epochs=1,
        per_device_train_batch_size=settings.rows_per_microbatch,
        gradient_accumulation_steps=plan.microbatches_per_update,
        logging_steps=1,
        max_grad_norm=settings.max_grad_norm,
    )


def _optimizer(
    trainer: PolicyTrainer, model: torch.nn.Module, settings: TrainSettings, state: Path | None
) -> tuple[torch.optim.Optimizer, int]:
    """AdamW without decay on norms and biases, its moments restored, and the number of updates they have seen.

    The learning rate is constant after a linear warm-up over the first `warmup_updates` updates of the optimiser's life.
    """
    decayed = set(trainer.get_decay_parameter_names(model))
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": settings.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.adam_betas, fused=True)
    done = load_optimizer(optimizer, model, state) if state is not None else 0
    warmup = max(1, settings.warmup_updates)
    trainer.optimizer = optimizer
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: min(1.0, (done + update + 1) / warmup)
    )
    return optimizer, done


def _prepare_logprobs(
    model: Any, plan: Plan, settings: TrainSettings, reference: str | None, pad: int, device: torch.device
) -> dict[str, float]:
    """Fill in old (if recomputed) and reference log-probabilities; gives the gap between sampler and trainer.

    The gap is measured on the rows of the first update, a random sample, or on all rows where all are computed anyway.
    """
    tokens = plan.tokens
    everything = range(len(plan.rows))
    adapter = hasattr(model, "disable_adapter")
    own_reference = settings.beta != 0 and reference is None and not adapter
    few = plan.updates[0].rows if plan.updates else everything[: settings.rows_per_update]
    scored = everything if settings.recompute_logprobs or own_reference else few

    def score(scorer: Any, members: Sequence[int]) -> Tensor:
        found = torch.zeros(tokens.old.shape)
        own = tokens.chunks(members, settings.rows_per_microbatch)[plan.world.rank :: plan.world.size]
        batches = (tokens.pad(chunk, pad) for chunk in own)
        for chunk, values in zip(own, response_logprobs(scorer, batches, device), strict=True):
            tokens.scatter(found, chunk, values)
        return sum_over_ranks(found.to(device), plan.world).cpu()

    current = score(model, scored)
    gap = logprob_gap(tokens.gather(current, scored), tokens.gather(tokens.old, scored))
    if settings.recompute_logprobs:
        tokens.old = current
    if settings.beta != 0:
        if own_reference:
            tokens.reference = current
        elif reference is None:
            with model.disable_adapter():
                tokens.reference = score(model, everything)
        else:
            tokens.reference = score(load_frozen(reference, str(device)), everything)
    return gap


def _writer(metrics: Path, main: bool) -> contextlib.AbstractContextManager[RecordWriter | None]:
    return RecordWriter(metrics) if main else contextlib.nullcontext()


def _statistics(
    plan: Plan, counts: RowCounts, gap: dict[str, float], written: list[TrainMetrics], done: int
) -> dict[str, Any]:
    averaged = ("loss", "surrogate", "kl", "entropy", "clip_fraction", "ratio_mean", "grad_norm")
    return {
        "trees": counts.trees,
        "trajectories": counts.trajectories,
        "rows": counts.rows,
        "rows_unassigned": counts.unassigned,
        "rows_without_tokens": counts.without_tokens,
        "rows_skipped": sum(len(update.rows) - len(update.weights) for update in plan.updates),
        "updates": len(plan.updates),
        "updates_skipped": plan.skipped,
        "updates_before": done,
        "tokens": sum(line.tokens for line in written),
        "logprob_gap": gap,
        "means": {name: fmean(getattr(line, name) for line in written) for name in averaged} if written else {},
        "ratio_max": max((line.ratio_max for line in written), default=1.0),
    }
