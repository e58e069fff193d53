"""A tiny policy that sees, its pictures, and trees that it sampled with real replies."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agentcli.environments.protocol import Picture
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.protocol import Request
from agentcli.policies.sight import Eyesight
from agentcli.policies.tiny import look_of, make_processor, make_seeing_model, make_tokenizer
from agentcli.prompts.protocol import Message
from agentcli.records.pictures import keep_pictures
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import TinySettings
from agentcli.records.types import Ledger, Outcome, Step, Task, Tree
from PIL import Image
from policy_requests import all_replies, make_request
from tiny_rollout import credit_of, write

SIDE = 16
"""Pixels of a side of the pictures."""
SMALL = TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=48, initializer_range=0.2)
WORDS = "start last up down left right wall box <think> push </think><action> up </action>"


def picture(number: int, side: int = SIDE) -> Picture:
    """A picture of four squares, whose colours the number decides."""
    image = Image.new("RGB", (2, 2))
    image.putdata([(number * 37 % 256, number * 91 % 256, place * 80) for place in range(4)])
    file = io.BytesIO()
    image.resize((side, side), Image.Resampling.NEAREST).save(file, "PNG")
    return Picture(file.getvalue())


def seeing(seed: int = 1, shape: TinySettings = SMALL) -> tuple[Any, Any, Eyesight]:
    """A model, its tokenizer, and how it reads messages."""
    tokenizer = make_tokenizer([WORDS], [], sees=True)
    look = look_of([picture(number) for number in range(8)])
    sight = Eyesight(make_processor(tokenizer, shape, look))
    return make_seeing_model(shape, tokenizer, look, seed), tokenizer, sight


def seeing_policy(seed: int = 1, **settings: Any) -> TransformersPolicy:
    model, tokenizer, sight = seeing(seed)
    return TransformersPolicy(model, tokenizer, PolicySettings(**settings), sight)


def shown(number: int, pictures: int = 1, **changes: Any) -> Request:
    """A request with pictures of its own."""
    text = " ".join(WORDS.split()[: 1 + number % 7])
    parts = [picture(10 * number + place) for place in range(pictures)]
    return make_request(seed=number, message=Message((text, *parts)), **changes)


def seeing_rollout(folder: Path, count: int = 4) -> SimpleNamespace:
    """Files `trees`, `credit` and `model`: chains of three steps, sampled from a policy that sees."""
    policy = seeing_policy()
    model, tokenizer, sight = seeing()
    model.save_pretrained(folder / "model")
    sight.processor.save_pretrained(folder / "model")
    requests = [shown(number) for number in range(3 * count)]
    trees = []
    answered = list(zip(requests, all_replies(policy, requests), strict=True))
    for number in range(count):
        steps = []
        for place, (request, reply) in enumerate(answered[3 * number : 3 * number + 3]):
            message = request.message
            keep_pictures(folder / "pictures", {one.name: one.png for one in message.pictures})
            steps.append(
                Step(
                    id=place,
                    parent=place - 1 if place else None,
                    prompt=message.text,
                    pictures=tuple(one.name for one in message.pictures),
                    response=reply.text or "up",
                    token_ids=list(reply.token_ids),
                    logprobs=list(reply.logprobs),
                    stop=reply.stop,
                    observation="",
                    action="up",
                    state=str(place),
                    next_state=str(place + 1),
                    next_observation="",
                    outcome=Outcome.FAILURE if place == 2 else None,
                )
            )
        task = Task(id=f"task-{number}", world="test", split="train", kind="any")
        trees.append(Tree(task=task, instruction="", method="chain", seed=0, steps=steps, ledger=Ledger()))
    credits = [
        credit_of(tree, [(-1.0) ** (number + step.id) for step in tree.steps]) for number, tree in enumerate(trees)
    ]
    return SimpleNamespace(
        folder=folder,
        model=folder / "model",
        tokenizer=tokenizer,
        trees=write(folder / "trees.jsonl", trees),
        credit=write(folder / "credit.jsonl", credits),
        tree_list=trees,
    )
