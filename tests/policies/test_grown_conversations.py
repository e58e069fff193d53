"""Trees of conversations that grow: what is recorded, what a prefix cache saves, and what training makes of them."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from agentcli.environments.protocol import Context, Observation
from agentcli.exploration.actor import Actor
from agentcli.exploration.registry import make
from agentcli.exploration.settings import rollout_settings
from agentcli.policies import layouts
from agentcli.policies.chat_tokens import ChatTokens, common_prefix
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.layouts import KeptCaches, _size
from agentcli.prompts.protocol import Moment
from agentcli.prompts.recorded import message_of, turns_before, whole_text
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import EnvironmentSettings, PolicySettings, PromptSettings, Settings
from agentcli.records.trees import children, paths, validate_tree
from agentcli.records.types import Tree
from agentcli.stages.tally import Tally
from policy_requests import TASK, make_request
from refusal import refused
from small_world import SmallWorld


class State:
    instruction, replayed = "put a clean apple in cabinet 1", 0

    def __init__(self, observation: Observation) -> None:
        self.observation = observation


class Engines:
    """A world that names the number of steps taken; everything is admissible, nothing ends."""

    async def start(self, task: Any) -> Any:
        return State(Observation(text="fridge 0", state="0", actions=("open fridge 1",)))

    async def step(self, state: Any, action: str) -> Any:
        number = int(state.observation.state) + 1
        return State(Observation(text=f"fridge {number}", state=str(number), actions=("open fridge 1",)))

    async def release(self, task_id: str) -> None: ...


def grow(
    model: Any, tokenizer: Any, steps: int = 6, method: str = "spark", batching: str = "exact", **prompt: Any
) -> tuple[Tree, TransformersPolicy]:
    more: dict[str, Any] = {"branch": "fixed:.5", "roots": 2} if method == "spark" else {}
    settings = Settings(
        environment=EnvironmentSettings(max_steps=steps),
        policy=PolicySettings(temperature=1.0, max_tokens=5, batching=batching),  # type: ignore[arg-type]
        prompt=PromptSettings(style="chat", **prompt),
        rollout=rollout_settings(method=method, leaves=6, **more),
    )
    policy = TransformersPolicy(model, tokenizer, settings.policy)

    async def work() -> Tree:
        actor = Actor(TASK, Engines(), policy, SmallWorld(), settings, 1)  # type: ignore[arg-type]
        return await make(method)(actor, settings.rollout)

    return asyncio.run(work()), policy


def test_a_step_holds_what_was_added_and_its_prompt_begins_with_the_one_before(model: Any, tokenizer: Any) -> None:
    tree, policy = grow(model, tokenizer)
    validate_tree(tree)
    assert tree.ledger.forks > 0
    ids = {}
    for step in tree.steps:
        ids[step.id] = policy.tokens.ids(message_of(step), turns_before(tree, step))
        if step.parent is None:
            assert step.system
            assert not step.continues
            continue
        assert step.continues == "exact"
        assert not step.system
        assert len(step.prompt) < 80
        parent = tree.steps[step.parent]
        said = [*ids[parent.id], *parent.token_ids]
        assert ids[step.id][: len(said)] == said
        assert parent.prompt in whole_text(tree, step)
    expected = 0
    for parent_id, siblings in children(tree).items():
        if parent_id is not None:
            expected += len(ids[parent_id]) + len(tree.steps[parent_id].token_ids)
        expected += sum(len(ids[step.id]) for step in siblings[1:])
    assert tree.ledger.shared_prompt_tokens == expected
    assert tree.ledger.prompt_tokens == sum(map(len, ids.values()))


def test_the_same_seed_gives_the_same_bytes_and_files_grow_with_the_steps(model: Any, tokenizer: Any) -> None:
    size = {}
    for steps in (8, 16):
        tree, _ = grow(model, tokenizer, steps, "chain")
        size[steps] = len(msgspec.json.encode(tree))
        assert size[steps] == len(msgspec.json.encode(grow(model, tokenizer, steps, "chain")[0]))
    assert size[16] < 2.1 * size[8]


def test_a_conversation_begins_anew_with_what_was_done(model: Any, tokenizer: Any) -> None:
    tree, policy = grow(model, tokenizer, restart=3)
    for steps in paths(tree):
        assert [bool(step.system) for step in steps] == [depth % 3 == 0 for depth in range(len(steps))]
        begun = steps[3]
        assert begun.prompt.startswith("Steps taken so far: 3.")
        assert begun.system == steps[0].system
        assert len(turns_before(tree, steps[5])) == 2
        assert policy.tokens.ids(message_of(begun), turns_before(tree, begun))
    tally = Tally()
    tally.add(tree)
    begun = [step for step in tree.steps if step.parent is not None and step.system]
    assert tally.statistics()["restarts"] == len(begun) > 0


def test_a_conversation_that_begins_anew_shares_its_beginning(model: Any, tokenizer: Any) -> None:
    tree, policy = grow(model, tokenizer, steps=4, method="chain", restart=3)
    expected = 0
    for step in (step for step in tree.steps if step.parent is not None):
        before = tree.steps[step.parent]
        ran = [*policy.tokens.ids(message_of(before), turns_before(tree, before)), *before.token_ids]
        expected += common_prefix(policy.tokens.ids(message_of(step), turns_before(tree, step)), ran)
    roots = [len(policy.tokens.ids(message_of(step))) for step in tree.steps if step.parent is None]
    assert tree.ledger.shared_prompt_tokens == expected + sum(roots[1:])


@pytest.mark.parametrize("style", ["chat", "chat-compact"])
def test_the_first_message_of_a_conversation_is_kept_for_what_follows(style: str, model: Any, tokenizer: Any) -> None:
    dialect = make_dialect(PromptSettings(style=style), SmallWorld(), False)
    context = Context(task=TASK, instruction="go", observations=("You see nothing.",), admissible=("look",))
    request = make_request(message=dialect.ask(Moment(copies=(context,))))
    assert ChatTokens(tokenizer, None, 4096).prompted(request).grows


def test_a_method_that_acts_in_several_copies_holds_no_conversation() -> None:
    make_chat = partial(make_dialect, PromptSettings(style="chat"), SmallWorld(), True)
    refused(make_chat, names=("prompt.style", "chat"), remedy="full")


@pytest.mark.parametrize("kept", [None, True, False])
def test_how_a_conversation_continues_is_recorded(kept: bool | None, model: Any, tokenizer: Any) -> None:
    tree, policy = grow(model, tokenizer, keep_thinking=kept)
    ways = {step.continues for step in tree.steps if step.parent is not None}
    assert ways == {{None: "exact", True: "sampled", False: "rendered"}[kept]}
    last = tree.steps[-1]
    text = policy.tokens._tokenizer.decode(policy.tokens.ids(message_of(last), turns_before(tree, last)))
    assert text.count("fridge") >= len(turns_before(tree, last))


def test_what_was_run_for_the_step_before_is_not_run_again(model: Any, tokenizer: Any) -> None:
    """With the fast layout; forks share it, and the tokens are those of whole prompts."""
    exact, _ = grow(model, tokenizer, steps=8)
    read: list[int] = []
    hook = model.model.embed_tokens.register_forward_pre_hook(lambda module, words: read.append(words[0].numel()))
    fast, _ = grow(model, tokenizer, steps=8, batching="fast")
    hook.remove()
    assert fast.ledger.forks > 0
    assert [step.token_ids for step in fast.steps] == [step.token_ids for step in exact.steps]
    for one, other in zip(fast.steps, exact.steps, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert sum(read) < 0.6 * fast.ledger.prompt_tokens


def test_other_weights_forget_what_was_kept(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    _, policy = grow(model, tokenizer, batching="fast")
    kept = policy._layout._kept  # type: ignore[attr-defined]
    assert kept._bytes == sum(map(_size, kept._kept.values())) > 0
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy._model = model
    asyncio.run(policy.load(str(tmp_path)))
    assert not kept._kept


def test_what_was_not_used_for_longest_goes_first_and_is_computed_again(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.tensor([[5, 6, 7]])
    cache = model(ids, use_cache=True).past_key_values
    columns = torch.arange(3)
    one = KeptCaches()
    one.keep([5, 6, 7], cache, 0, columns)
    monkeypatch.setattr(layouts, "BYTES_KEPT", 2 * one._bytes)
    room = KeptCaches()
    for name in (1, 2):
        room.keep([name], cache, 0, columns)
    assert room.get([1]) is not None
    room.keep([3], cache, 0, columns)
    assert [room.get([name]) is not None for name in (1, 2, 3)] == [True, False, True]
    assert room._bytes == 2 * one._bytes
