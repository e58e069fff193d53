"""`train` with objective offline-ppo: PPO on a fixed rollout (Rare-tool 3.3).

Before an epoch, log pi_old(a|s) and V_old(s) are computed with the current actor and
critic; A = R - V_old(s). Each update minimises beta * mean (log pi - log pi_old)^2 -
L^CLIP for the actor and mean (V - R)^2 for the critic. An epoch ends early if the mean
squared log-ratio exceeds train.options.stop_at. With `old: start`, all epochs use
pi_old and V_old from the start of training.
"""

from pathlib import Path
from typing import Any

import msgspec

from agentcli.policies.chat_tokens import ChatTokens, configured_ends
from agentcli.policies.load import load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.pair import ActorCritic, load_pair, rate_of, save_pair
from agentcli.training.imitation.unknown import UnknownWords
from agentcli.training.loop.job import Job, adamw, keeping_cache, run, start
from agentcli.training.loop.metrics import means_of
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.loop.tokens import StepTokeniser
from agentcli.training.objectives import not_read, options_of
from agentcli.training.offline_ppo.appraisal import Appraisal
from agentcli.training.offline_ppo.objective import OfflinePpoMetrics
from agentcli.training.offline_ppo.rows import read_offline_rows
from agentcli.training.offline_ppo.trainer import OfflinePpoTrainer
from agentcli.training.policy_gradient.batches import UpdatePlan, plan_updates
from agentcli.training.policy_gradient.logprobs import RowScorer, tokenise_rows
from agentcli.training.policy_gradient.train import row_arguments


def train_offline_ppo(
    job: Job[TrainSettings], trees: Path, credit: Path
) -> dict[str, Any]:
    """Trains actor and critic on the credited rows of `trees`.

    Returns the statistics for the manifest. Raises what `read_offline_rows` and
    `load_pair` raise, MissingError for a missing tracker, AgentCliError if a loss is
    not finite.
    """
    settings = job.settings
    options: Any = options_of(settings)
    processes = start(job)
    tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
    words = UnknownWords(tokenizer)
    chat = ChatTokens(tokenizer, configured_ends(job.model), max_prompt_tokens=0)
    rows, counts = read_offline_rows(trees, credit, chat, words)
    words.warn("the actions to learn", job.model)
    pair = load_pair(job, options)
    tokens = tokenise_rows(rows, StepTokeniser(tokenizer, pair.actor, job.model))
    # An action counts by its weight, whatever its length.
    by_action = msgspec.structs.replace(settings, aggregate="sequence")
    plan = plan_updates(rows, tokens, by_action, job.seed, processes, every_row=True)
    facts = _facts(plan, settings, pair, options.old)
    pad = tokenizer.pad_token_id or 0
    arguments = row_arguments(job, plan, max_grad_norm=0.0)
    pair.to(arguments.device)
    scorer = RowScorer(plan, pad, arguments.device, settings.bf16)
    appraisal = Appraisal(pair, plan, scorer, job.snapshot, facts)
    appraisal.compute()
    with keeping_cache(pair.actor), keeping_cache(pair.critic):
        trainer = OfflinePpoTrainer(
            pair, arguments, plan, appraisal, pad, settings, options
        )
        trained = adamw(job, trainer, pair, rate_of(settings, options))
        facts["updates before"] = trained.updates_before
        lines = run(
            *(job, trainer, trained, OfflinePpoMetrics, facts),
            len(plan.updates),
            processes,
        )
    save_pair(job, tokenizer, trained, processes)
    return {
        **msgspec.structs.asdict(counts),
        **_statistics(plan, lines),
        "unknown_tokens": words.unknown,
        "unknown_words": words.frequent(),
        "updates_before": trained.updates_before,
    }


def _facts(
    plan: UpdatePlan, settings: TrainSettings, pair: ActorCritic, old: str
) -> Facts:
    """Numbers and hashes of the plan; a snapshot is resumed only if they match."""
    tokens = plan.tokens
    numbers = [(row.parts, row.weight, row.temperature) for row in plan.rows]
    order = [(update.rows, update.microbatches) for update in plan.updates]
    return {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, not_read(settings)),
        "old": old,
        "rows": digest(tokens.prompts, tokens.responses, numbers, order),
        "starting model": model_fact(pair),
    }


def _statistics(plan: UpdatePlan, lines: list[OfflinePpoMetrics]) -> dict[str, Any]:
    """The statistics for the manifest that come from the plan and the metrics lines."""
    averaged = (
        *("loss", "surrogate", "squared_log_ratio", "entropy", "clip_fraction"),
        *("advantage_mean", "value_loss", "explained_variance"),
        *("grad_norm", "critic_grad_norm"),
    )
    return {
        "updates": len(lines),
        "updates_left_out": len(plan.updates) - len(lines),
        "epochs_stopped": sum(line.stopped for line in lines),
        "tokens": sum(line.tokens for line in lines),
        "temperatures": sorted({row.temperature for row in plan.rows}),
        "means": means_of(lines, averaged),
    }
