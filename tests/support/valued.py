"""Rollouts of a problem whose values are known: one word is shown, one of two words is answered, and its reward is given."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.records.types import Credit, Ledger, Outcome, Step, StepCredit, StopReason, Task, Tree
from agentcli.training.critic import load_critic, state_values
from agentcli.training.loop.job import Job
from agentcli.training.objectives import make_objective

BETTER, WORSE = "wordaa", "wordab"
STATES = ("wordca", "wordcb")


class Taken(NamedTuple):
    """One step: the word shown, the word answered, its return."""

    state: str
    action: str
    reward: float


def trees_of(taken: list[Taken], tokenizer: Any, value: float | None = None) -> list[Tree]:
    """One tree of one step each."""
    trees = []
    for number, (state, action, _) in enumerate(taken):
        ids = [*tokenizer(action, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        step = Step(
            id=0,
            parent=None,
            prompt=state,
            response=action,
            token_ids=ids,
            logprobs=[-1.0] * len(ids),
            stop=StopReason.STOP,
            observation=state,
            action=action,
            state=state,
            next_state="",
            next_observation="",
            outcome=Outcome.SUCCESS,
            value=value,
        )
        task = Task(id=f"task-{number}", world="test", split="train", kind="any")
        trees.append(Tree(task=task, instruction="", method="chain", seed=0, steps=[step], ledger=Ledger()))
    return trees


def credit_of(taken: list[Taken], value: float = 0.0) -> list[Credit]:
    """Credit whose `return` is the reward of each step."""
    credits = []
    for number, one in enumerate(taken):
        parts = {"return": one.reward, "value": value}
        entry = StepCredit(step=0, advantage=one.reward - value, parts=parts)
        credits.append(Credit(task=f"task-{number}", method="test", steps=[entry]))
    return credits


def trained(
    folder: Path,
    trees: Path,
    credit: Path,
    model: Path,
    critic: Path | None = None,
    *,
    progress: Any = None,
    optimizer_in: Path | None = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """The statistics of a training into `folder`, with a snapshot."""
    job = Job(
        str(model),
        folder / "checkpoint",
        TrainSettings(**settings),
        seed,
        folder / "metrics.jsonl",
        critic=str(critic) if critic else None,
        critic_out=folder / "critic",
        optimizer_in=optimizer_in,
        optimizer_out=folder / "optimizer.safetensors",
        progress=progress,
        snapshot=folder / "snapshot",
    )
    return make_objective(job.settings.objective).train(job, trees, credit)


def chance(model: Path, state: str, action: str) -> float:
    """The probability of an answer's first word at temperature 1."""
    tokenizer = load_tokenizer(str(model))
    network = load_model(str(model), device="cpu")
    with torch.no_grad():
        logits = network(torch.tensor([prompt_ids(tokenizer, state)])).logits[0, -1]
    return float(logits.softmax(-1)[tokenizer(action, add_special_tokens=False).input_ids[0]])


def value(critic: Path, state: str) -> float:
    """V of a state by the critic of a directory."""
    ids = prompt_ids(load_tokenizer(str(critic)), state)
    with torch.no_grad():
        return float(state_values(load_critic(str(critic)), torch.tensor([ids]), torch.tensor([len(ids) - 1])))
