"""`train`: one clipped policy-gradient pass over the rows of a rollout.

The trainer knows no method: rows and their advantages come from files (`rows.py`), which of them are run when and with which
weight is planned beforehand (`batches.py`), the loss is a pure function (`losses.py`), and the loop is transformers.Trainer's
(`policy_trainer.py`). The checkpoint and the optimiser state are written last.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import TrainingArguments, set_seed

from agentcli.errors import DataError, UsageError
from agentcli.policies.load import load_tokenizer
from agentcli.records.settings import TrainSettings
from agentcli.training.loop.arguments import trainer_arguments, trainer_seed
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.distributed import announced_world, check_world
from agentcli.training.loop.job import Job, optimise, run, save
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.loop.trackers import check_trackers
from agentcli.training.policy_gradient.batches import Plan, plan_updates
from agentcli.training.policy_gradient.logprobs import prepare_logprobs, tokenise_rows
from agentcli.training.policy_gradient.metrics import TrainMetrics
from agentcli.training.policy_gradient.rows import Row, RowCounts, read_rows
from agentcli.training.policy_gradient.trainer import PolicyTrainer

NOT_READ = ("credit", "reference", "carry_optimizer", "objective", "dpo")
"""Settings that say how the caller chose what it hands over, or are of another objective."""


def train_policy(job: Job, credit: Path) -> dict[str, Any]:
    """Train on the credited rows of the job's trees. Its `reference` is only loaded if settings.beta is not 0; None means the
    model that training starts from, for LoRA the base model without its adapter.

    The same inputs and seed give bit-identical weights on one machine with one thread count, stopped and continued or not. Under
    torchrun every rank calls this and the first one writes.

    Returns the statistics of the manifest. Raises DataError for files that do not fit together or hold nothing to train on,
    UsageError for settings that cannot take effect, MissingError for a missing tracker, AgentCliError for a loss not finite.
    """
    settings, seed = job.settings, job.seed
    check_trackers(job.tracking)
    world = announced_world()
    rows, counts = _rows(job.trees, credit, settings)
    set_seed(trainer_seed(seed))
    tokenizer = load_tokenizer(job.model_dir)
    model = load_trainable(job.model_dir, settings.lora, "cpu")
    tokens = tokenise_rows(rows, tokenizer, model.get_input_embeddings().num_embeddings, job.model_dir)
    plan = plan_updates(rows, tokens, settings, seed, world)
    facts = _facts(plan, settings, model)
    pad = tokenizer.pad_token_id or 0
    arguments = _arguments(settings, seed, plan)
    check_world(world, arguments.world_size)
    gap = prepare_logprobs(model.to(arguments.device), plan, settings, job.reference, pad, arguments.device)
    use_cache = model.config.use_cache  # Trainer turns it off, and the checkpoint is there to generate
    trainer = PolicyTrainer(model, arguments, plan, pad, settings)
    trained, before = optimise(job, trainer, model)
    run(job, trainer, TrainMetrics, len(plan.updates), facts, trained, before, world)
    model.config.use_cache = use_cache
    save(job, model, tokenizer, trained, world)
    return _statistics(plan, counts, gap, trainer.recorder.lines, before)


def _rows(trees: Path, credit: Path, settings: TrainSettings) -> tuple[list[Row], RowCounts]:
    for name in ("epochs", "rows_per_update", "rows_per_microbatch"):
        if getattr(settings, name) < 1:
            raise UsageError(f"train.{name}: {getattr(settings, name)}, must be at least 1")
    for name in ("clip", "beta", "learning_rate", "warmup_updates"):
        if not getattr(settings, name) >= 0:
            raise UsageError(f"train.{name}: {getattr(settings, name)}, must not be negative")
    rows, counts = read_rows(trees, credit, settings.update, settings.recompute_logprobs)
    if not rows:
        left = f"{counts.unassigned} unassigned, {counts.not_critical} without a sibling"
        raise DataError(f"{credit}: no step has both an advantage and sampled tokens ({left})")
    return rows, counts


def _arguments(settings: TrainSettings, seed: int, plan: Plan) -> TrainingArguments:
    return trainer_arguments(
        TrainingArguments,
        seed,
        num_train_epochs=1,
        per_device_train_batch_size=settings.rows_per_microbatch,
        gradient_accumulation_steps=plan.microbatches_per_update,
        logging_steps=1,
        max_grad_norm=settings.max_grad_norm,
    )


def _facts(plan: Plan, settings: TrainSettings, model: torch.nn.Module) -> Facts:
    tokens = plan.tokens
    numbers = [(row.advantage, row.weight, row.share, row.temperature, row.logprob_temperature) for row in plan.rows]
    order = [(update.rows, update.microbatches) for update in plan.updates]
    return {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, NOT_READ),
        "rows": digest(tokens.prompts, tokens.responses, tokens.old.tolist(), numbers, order),
        "starting model": model_fact(model),
    }


def _statistics(
    plan: Plan, counts: RowCounts, gap: dict[str, float], written: list[TrainMetrics], done: int
) -> dict[str, Any]:
    averaged = ("loss", "surrogate", "kl", "entropy", "clip_fraction", "ratio_mean", "grad_norm")
    return {
        "trees": counts.trees,
        "trajectories": counts.trajectories,
        "rows": counts.rows,
        "rows_unassigned": counts.unassigned,
        "rows_inherited": counts.inherited,
        "rows_not_critical": counts.not_critical,
        "rows_without_tokens": counts.without_tokens,
        "rows_skipped": counts.rows - len({row for update in plan.updates for row in update.weights}),
        "updates": len(plan.updates),
        "updates_skipped": plan.skipped,
        "updates_before": done,
        "tokens": sum(line.tokens for line in written),
        "temperatures": sorted({row.temperature for row in plan.rows}),
        "logprob_gap": gap,
        "means": {name: fmean(getattr(line, name) for line in written) for name in averaged} if written else {},
        "ratio_max": max((line.ratio_max for line in written), default=1.0),
    }
