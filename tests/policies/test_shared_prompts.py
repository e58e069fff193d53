"""Prompt tokens that a prefix cache saves: exact where the policy has the tokens, from siblings alone where it has not."""

import asyncio
from typing import Any

from agentcli.environments.protocol import Observation
from agentcli.exploration.actor import Actor
from agentcli.exploration.registry import make
from agentcli.exploration.settings import rollout_settings
from agentcli.policies.chat_tokens import common_prefix
from agentcli.policies.hf import TransformersPolicy
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.settings import EnvironmentSettings, PolicySettings, PromptSettings, Settings
from agentcli.records.trees import children
from agentcli.records.types import Tree
from hypothesis import given
from hypothesis import strategies as st
from policy_requests import TASK, make_request
from small_world import SmallWorld

tokens = st.lists(st.integers(0, 2), max_size=12)


@given(tokens, tokens)
def test_common_prefix(one: list[int], other: list[int]) -> None:
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


def test_the_reply_counts_the_tokens_shared_with_the_parent(model: Any, tokenizer: Any) -> None:
    policy = TransformersPolicy(model, tokenizer, PolicySettings())

    async def shared(prompt: str, parent: str) -> int:
        before = (Exchange(Message((parent,)), ""),) if parent else ()
        return (await policy.respond(make_request(prompt, max_tokens=2, turns=before))).shared_prompt_tokens

    async def work() -> list[int]:
        prompt = "fridge 1 cabinet 2 apple 3"
        pairs = [(prompt, ""), (prompt, prompt), (prompt, "fridge 1 cabinet 2 fridge 1"), (prompt, "apple 3 fridge 1")]
        return [await shared(*pair) for pair in pairs]

    whole = len(policy.tokens.prompt_ids("fridge 1 cabinet 2 apple 3"))
    assert asyncio.run(work()) == [0, whole, 2, 0]


class Engines:
    """A world whose text grows by the action taken; everything is admissible, nothing ends."""

    async def start(self, task: Any) -> Any:
        return State(Observation(text="apple 1", state="apple 1"))

    async def step(self, state: Any, action: str) -> Any:
        return State(Observation(text=f"{state.observation.text} fridge {len(state.observation.text) % 12}", state="x"))

    async def release(self, task_id: str) -> None: ...


class State:
    instruction, replayed = "", 0

    def __init__(self, observation: Observation) -> None:
        self.observation = observation


class World(SmallWorld):
    def compact(self, context: Any) -> str:
        return " ".join(context.observations)


def test_the_ledger_is_what_the_tree_s_own_prompts_share(model: Any, tokenizer: Any) -> None:
    """First children share with their parents, their siblings share the whole prompt."""
    settings = Settings(
        environment=EnvironmentSettings(max_steps=4),
        policy=PolicySettings(temperature=1.0, max_tokens=4),
        prompt=PromptSettings(style="compact"),
        rollout=rollout_settings(method="spark", branch="fixed:.5", leaves=6, roots=2),
    )
    policy = TransformersPolicy(model, tokenizer, settings.policy)

    async def work() -> Tree:
        actor = Actor(TASK, Engines(), policy, World(), settings, 1)  # type: ignore[arg-type]
        return await make("spark")(actor, settings.rollout)

    tree = asyncio.run(work())
    ids = {step.id: policy.tokens.prompt_ids(step.prompt) for step in tree.steps}
    expected = 0
    for parent, siblings in children(tree).items():
        expected += common_prefix(ids[siblings[0].id], ids[parent]) if parent is not None else 0
        expected += sum(len(ids[step.id]) for step in siblings[1:])
    assert tree.ledger.forks == 4
    assert 0 < tree.ledger.shared_prompt_tokens == expected < tree.ledger.prompt_tokens
