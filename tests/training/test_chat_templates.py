"""sft with the chat templates that TRL ships: what it teaches is what the dialect reads, or it is refused in one line."""

from functools import partial

import pytest
from agentcli.environments.protocol import Context
from agentcli.environments.registry import make_world
from agentcli.policies.chat import rendered, set_template_kwargs, step_ids
from agentcli.policies.chat_tokens import ChatTokens, Prompted
from agentcli.policies.tiny import make_tokenizer
from agentcli.prompts.protocol import Answer, Message, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import EnvironmentSettings, PromptSettings
from agentcli.records.types import Ledger, Move, Step, Task, Tree
from agentcli.training.demonstrations import SampledForm, sample_of
from chat_templates import tokenizer_with
from quiz_world import QuizWorld
from refusal import refused
from small_world import SmallWorld

PROMPT = "open the fridge. <|im_end|> is only a word; answer in <think> or <explore>"
OFF = {"enable_thinking": False}
OPENED = ["qwen3_thinking_2507", "qwen3_5_think", "qwen3_6", "qwen3_8", "deepseek_r1_distill"]
"""Templates whose prompt ends with <think>, if nothing is set."""
PLAIN = [
    "qwen2_5",
    "qwen3",
    "qwen3_instruct_2507",
    "qwen3_5_nothink",
    "llama3",
    "gemma",
    "gemma3",
    "gemma4",
    "phi3",
    "smollm2",
]
SWITCHED = ["qwen3", "qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8", "nemotron_3_nano"]
"""Templates that know enable_thinking, with which no prompt is left open."""
CASES = [
    *((name, {}, True) for name in OPENED),
    *((name, {}, False) for name in PLAIN),
    *((name, OFF, False) for name in SWITCHED),
    ("qwen3_5_nothink", {"enable_thinking": True}, True),
]
FORMS = {
    "full": (SmallWorld(), [("think", {1: "open fridge 1"}), ("explore", {1: "go to cabinet 2"})]),
    "rlvmr": (SmallWorld(), [("planning", {1: "look"}), ("reflection", {1: "look"}), ("think", {1: "look"})]),
    "react": (SmallWorld(), [("think", {1: "open fridge 1"})]),
    "tools": (
        QuizWorld(EnvironmentSettings()),
        [("think", {1: "peek[a box\nand another]"}), ("think", {1: "answer[A]"})],
    ),
    "search": (make_world(EnvironmentSettings(name="search_qa")), [("think", {1: "search[who?]"})]),
    "parallel-full": (SmallWorld(), [("think", {1: "look", 3: "open fridge 1"})]),
}
"""By style: a world, and the tag and the actions of each demonstration."""
STATES = {"state": "s", "next_state": "t", "observation": "", "next_observation": ""}


def chat(name, given):
    tokenizer, ends = tokenizer_with(name)
    set_template_kwargs(tokenizer, name, given)
    return tokenizer, ChatTokens(tokenizer, ends, 4096)


def demonstration(response, actions):
    """A tree of one step."""
    moves = []
    if len(actions) > 1:
        for copy, action in actions.items():
            moves.append(Move(copy=copy, action=action, **STATES))
    step = Step(id=0, parent=None, prompt=PROMPT, response=response, moves=moves, **STATES)
    task = Task(id="t", world="w", split="train", kind="k")
    return Tree(task=task, instruction="", method="chain", seed=0, steps=[step], ledger=Ledger())


@pytest.mark.parametrize("style", FORMS)
@pytest.mark.parametrize(("name", "given", "opened"), CASES, ids=lambda value: str(value))
def test_what_is_taught_is_what_is_read(name, given, opened, style):
    world, answers = FORMS[style]
    tokenizer, tokens = chat(name, given)
    assert bool(tokens.opened) is opened
    prompt = rendered(tokenizer, PROMPT)
    dialect_of = partial(make_dialect, PromptSettings(style=style), world)
    form, dialect = SampledForm(tokens, dialect_of), dialect_of(False)
    for tag, actions in answers:
        response = dialect.write(Answer(tag, "so it is", actions), Moment(copies=()))
        tree = demonstration(response, actions)
        sample = sample_of(tokens, Message((PROMPT,)), response)
        check = partial(form.check, sample, tree, tree.steps[0], "trees.jsonl:1: steps[0]")
        if opened and tag != "think":
            remedy = "enable_thinking=false" if name in SWITCHED else "--model"
            refused(check, 3, names=("trees.jsonl:1: steps[0]", f"<{tag}>"), remedy=remedy)
            continue
        check()
        rest = response.removeprefix("<think> ") if opened else response
        whole = tokenizer.decode([*sample.prompt, *sample.response])
        end = tokenizer.decode(sample.response[-1:])
        assert whole == prompt + rest + end
        assert sample.response[-1] in tokens.ends
        assert end in rendered(tokenizer, PROMPT, "a").rpartition("a")[2]
        # As a sampled response is read.
        reply = tokens.reply(Prompted(sample.prompt, 0, 1.0, 99), sample.response, [0.0] * len(sample.response))
        assert reply.text == (tokens.opened + rest if opened else response)
        context = Context(task=tree.task, instruction="", observations=("",))
        assert dialect.read(reply.text, Moment(copies=(context,) * 3)) == Answer(tag, "so it is", actions)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3_instruct_2507", "smollm2", "llama3", "tiny"])
@pytest.mark.parametrize("tag", ["think", "explore"])
def test_where_the_template_wrote_the_answer_as_it_was_the_ids_are_those_of_the_template(name, tag):
    response = f"<{tag}> the fridge is near </{tag}><action> open fridge 1 </action>"
    if name == "tiny":
        tokenizer = make_tokenizer([PROMPT, response], [])
        tokens = ChatTokens(tokenizer, None, 4096)
    else:
        tokenizer, tokens = chat(name, {})
    prompt, answer = sample_of(tokens, Message((PROMPT,)), response)
    whole = step_ids(tokenizer, PROMPT, response)
    assert whole[: len(prompt)] == prompt
    rest = whole[len(prompt) :]
    assert answer == rest[: rest.index(tokenizer.eos_token_id) + 1]


def test_a_template_that_ends_no_turn_is_refused():
    tokenizer, tokens = chat("glm4moe", OFF)
    refused(lambda: tokens.answer_ids("a"), names=tokenizer.name_or_path, remedy="chat_template")


def test_a_name_that_the_template_does_not_mention_is_refused():
    for name, given in (("qwen2_5", OFF), ("qwen3", {"enable_thought": True}), ("qwen3", {"thinking": True})):
        tokenizer, _ = tokenizer_with(name)
        key = f"policy.chat_template_kwargs.{next(iter(given))}"
        refused(partial(set_template_kwargs, tokenizer, name, given), names=(key, name), remedy="--model")


def test_a_tag_that_is_a_control_token_could_not_be_read():
    """Then the sampler leaves it out of the text."""
    tokenizer, ends = tokenizer_with("qwen2_5")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<explore>"]})
    tokens = ChatTokens(tokenizer, ends, 4096)
    response = "<explore> so it is </explore><action> look </action>"
    tree = demonstration(response, {1: "look"})
    sample = sample_of(tokens, Message((PROMPT,)), response)
    form = SampledForm(tokens, partial(make_dialect, PromptSettings(), SmallWorld()))
    refused(lambda: form.check(sample, tree, tree.steps[0], "here"), 3, names="here", remedy="prompt.style")
