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

from agentcli.policies.load import load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.model import load_trainable_critic, save_critic
from agentcli.training.critic.options import RETURN
from agentcli.training.loop.distributed import wait_for_all
from agentcli.training.loop.job import Job, adamw, keeping_cache, run, start
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.objectives import not_read, options_of
from agentcli.training.policy_gradient.batches import plan_updates
from agentcli.training.policy_gradient.train import row_arguments
from agentcli.training.process_reward.objective import ProcessRewardMetrics
from agentcli.training.process_reward.rows import read_scored_rows
from agentcli.training.process_reward.trainer import ProcessRewardTrainer


def train_process_reward(
    job: Job[TrainSettings], trees: Path, credit: Path
) -> dict[str, Any]:
    """Trains a process reward model on the credited steps of `trees`.

    Returns the statistics for the manifest. Raises what `read_scored_rows` and
    `load_trainable_critic` raise.
    """
    settings = job.settings
    options: Any = options_of(settings)
    processes = start(job)
    tokenizer = load_tokenizer(job.model)
    rows, tokens = read_scored_rows(trees, credit, options.target, tokenizer)
    model = load_trainable_critic(
        job.model, options.head, settings.lora, "policy.model"
    )
    # A step counts by its weight, whatever its length.
    by_step = msgspec.structs.replace(settings, aggregate="sequence")
    plan = plan_updates(rows, tokens, by_step, job.seed, processes, every_row=True)
    numbers = [(row.parts, row.weight) for row in rows]
    order = [(update.rows, update.microbatches) for update in plan.updates]
    facts: Facts = {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, not_read(settings)),
        "rows": digest(tokens.prompts, numbers, order),
        "starting model": model_fact(model),
    }
    arguments = row_arguments(job, plan, settings.max_grad_norm)
    model.to(arguments.device)
    pad = tokenizer.pad_token_id or 0
    with keeping_cache(model):
        trainer = ProcessRewardTrainer(model, arguments, plan, pad)
        trained = adamw(job, trainer, model)
        updates = len(plan.updates)
        lines = run(
            job, trainer, trained, ProcessRewardMetrics, facts, updates, processes
        )
    if processes.main:
        save_critic(model, tokenizer, job.out, reads="response")
    wait_for_all(processes)
    return {
        "rows": len(rows),
        "updates": updates,
        "target": options.target,
        "target_mean": fmean(row.parts[RETURN] for row in rows),
        "means": {"loss": fmean(line.loss for line in lines)},
    }
