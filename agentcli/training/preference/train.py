"""`train` with objective dpo: preference pairs of a rollout through TRL's DPOTrainer (ETO, Song et al. 2024).

Loss: mean over pairs of -log sigmoid(beta * ((log pi - log ref)(success) - (log pi - log ref)(failure))), where the log-probability
of a trajectory is the sum over its response tokens, at temperature 1 whatever it was sampled at: DPO takes no ratio to the policy
that sampled, and ETO has no temperature in its loss. No credit is needed: outcomes decide. Pairs come from `pairs.py`, batches
and their order from `dpo_batches.py`, the loop from `dpo_trainer.py`. The checkpoint and the optimiser state are written last.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import set_seed
from trl import DPOConfig

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.records.settings import TrainSettings
from agentcli.training.loop.arguments import trainer_arguments, trainer_seed
from agentcli.training.loop.checkpoints import load_frozen, load_trainable
from agentcli.training.loop.distributed import announced_world, check_world
from agentcli.training.loop.job import Job, optimise, run, save
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.loop.trackers import check_trackers
from agentcli.training.preference.batches import PairPlan, TokenPair, plan_pairs, tokenise_pairs
from agentcli.training.preference.metrics import DpoMetrics
from agentcli.training.preference.pairs import PairCounts, read_pairs
from agentcli.training.preference.trainer import PreferenceTrainer

NOT_READ = (
    *("credit", "reference", "carry_optimizer", "objective"),
    *("clip", "beta", "aggregate", "rows_per_microbatch", "recompute_logprobs"),
)
"""Settings that say how the caller chose what it hands over, or are the policy gradient's."""


def train_dpo(job: Job) -> dict[str, Any]:
    """Train on the preference pairs of the job's trees.

    settings.rows_per_update is the number of pairs of an update; they are run one at a time. `reference` None means the model
    that training starts from, its adapter included. A pair with a trajectory beyond settings.dpo.max_length is left out
    and counted. Everything else is as in `policy_gradient.train_policy`: files, snapshots, trackers, the same bits for the same
    inputs and seed, torchrun.

    Returns the statistics of the manifest. Raises DataError for a file that is no trees file or gives no pair, MissingError for a
    tracker that is not installed, AgentCliError when the loss stops being finite.
    """
    settings, seed = job.settings, job.seed
    check_trackers(job.tracking)
    world = announced_world()
    set_seed(trainer_seed(seed))
    tokenizer = load_tokenizer(job.model_dir)
    model = load_trainable(job.model_dir, settings.lora, "cpu")
    pairs, counts = _pairs(job.trees, tokenizer, model, job.model_dir, settings, seed)
    plan = plan_pairs(pairs, settings, seed, world)
    facts = _facts(plan, settings, model)
    arguments = _arguments(settings, seed, plan)
    check_world(world, arguments.world_size)
    use_cache = model.config.use_cache  # Trainer turns it off, and the checkpoint is there to generate
    trainer = PreferenceTrainer(model, _reference(job.reference), arguments, tokenizer, plan)
    trained, before = optimise(job, trainer, model)
    run(job, trainer, DpoMetrics, len(plan.updates), facts, trained, before, world)
    model.config.use_cache = use_cache
    save(job, model, tokenizer, trained, world)
    return _statistics(plan, counts, trainer.recorder.lines, before)


def _pairs(
    trees: Path, tokenizer: Any, model: Any, name: str, settings: TrainSettings, seed: int
) -> tuple[list[TokenPair], dict[str, int]]:
    counts = PairCounts()
    found = read_pairs(trees, settings.dpo.pairs_per_task, seed, counts)
    pairs = tokenise_pairs(found, tokenizer, model.get_input_embeddings().num_embeddings, name)
    if not pairs:
        raise DataError(
            f"{trees}: no preference pair: no task has both a success and a failure ({counts.trees} trees, {counts.successes} "
            f"successes, {counts.failures} failures); roll out more tasks, more leaves (rollout.leaves) or warmer "
            "(policy.temperature)"
        )
    limit = settings.dpo.max_length
    kept = [pair for pair in pairs if pair.length <= limit]
    if not kept:
        raise DataError(
            f"{trees}: all {len(pairs)} pairs have a trajectory of more than train.dpo.max_length ({limit}) tokens, the shortest "
            f"{min(pair.length for pair in pairs)}; set train.dpo.max_length higher or prompt.history lower"
        )
    numbers = {field: getattr(counts, field) for field in counts.__struct_fields__}
    return kept, {**numbers, "pairs": len(kept), "pairs_too_long": len(pairs) - len(kept)}


def _reference(directory: str | None) -> Any | None:
    if directory is None:
        return None
    model = load_frozen(directory, "cpu")
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def _arguments(settings: TrainSettings, seed: int, plan: PairPlan) -> DPOConfig:
    return trainer_arguments(
        DPOConfig,
        seed,
        beta=settings.dpo.beta,
        max_length=None,
        precompute_ref_log_probs=True,
        disable_dropout=False,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.microbatches_per_update,
        max_grad_norm=settings.max_grad_norm,
        logging_steps=1,
    )


def _facts(plan: PairPlan, settings: TrainSettings, model: torch.nn.Module) -> Facts:
    return {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, NOT_READ),
        "pairs": digest(plan.pairs, plan.updates),
        "starting model": model_fact(model),
    }


def _statistics(plan: PairPlan, counts: dict[str, int], lines: list[DpoMetrics], before: int) -> dict[str, Any]:
    averaged = ("loss", "accuracy", "margin", "chosen_reward", "rejected_reward", "grad_norm")
    return {
        **counts,
        "updates": len(plan.updates),
        "updates_before": before,
        "tokens": sum(line.tokens for line in lines),
        "means": {name: fmean(getattr(line, name) for line in lines) for name in averaged},
        "final_margin": lines[-1].margin,
        "final_accuracy": lines[-1].accuracy,
    }
