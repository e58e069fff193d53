"""Small trees of a policy: shared prefixes, responses drawn at random, and log-probabilities computed one row at a time with
plain transformers calls."""

import copy
from itertools import cycle

import torch
from agentcli.policies.chat import prompt_ids
from agentcli.prompts.protocol import Answer
from agentcli.records.files import RecordWriter
from agentcli.records.types import Credit, Ledger, Outcome, Step, StepCredit, StopReason, Task, Tree
from transformers import AutoModelForCausalLM

WORDS = [f"word{letter}{other}" for letter in "abcdef" for other in "abcdefgh"]
SHAPES = [[None, 0, 0, 1, 2], [None, 0, 1, None, 3, 4], [None, 0, 1, 2]]
"""Parents of the steps of each tree."""


class Words:
    """Reads the random words of these trees, which have no tags."""

    def read(self, response, moment):
        return Answer(actions={1: response})


def words(numbered):
    """The dialect of these trees, as imitation asks for it."""
    return Words()


def logprobs_alone(model, prompt, response, temperature=1.0):
    """Log-probabilities of one response at a temperature, from the full logits of that row alone."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0]
    return [
        torch.log_softmax(logits[len(prompt) - 1 + index].double() / temperature, -1)[token].item()
        for index, token in enumerate(response)
    ]


def make_tree(number, parents, model, tokenizer, rng):
    inner = set(parents)
    steps = []
    for position, parent in enumerate(parents):
        prompt = " ".join(rng.choices(WORDS, k=rng.randint(3, 12)))
        response = " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))
        ids = [*tokenizer(response, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        steps.append(
            Step(
                id=position,
                parent=parent,
                prompt=prompt,
                response=response,
                token_ids=ids,
                logprobs=[round(value, 6) for value in logprobs_alone(model, prompt_ids(tokenizer, prompt), ids)],
                stop=StopReason.STOP,
                observation="",
                action=response,
                state=str(position),
                next_state=str(position + 1),
                next_observation="",
                outcome=None if position in inner else Outcome.FAILURE,
            )
        )
    task = Task(id=f"task-{number}", world="test", split="train", kind="any")
    return Tree(task=task, instruction="", method="spark", seed=0, steps=steps, ledger=Ledger())


def at_temperatures(trees, temperatures, model, tokenizer):
    """Copies of the trees, their steps sampled at these temperatures in turn, with the log-probabilities of that."""
    trees = copy.deepcopy(trees)
    for tree in trees:
        for step, temperature in zip(tree.steps, cycle(temperatures)):
            step.temperature = step.logprob_temperature = temperature
            prompt = prompt_ids(tokenizer, step.prompt)
            step.logprobs = [round(value, 6) for value in logprobs_alone(model, prompt, step.token_ids, temperature)]
    return trees


def moved_model(rollout, folder, seed):
    """A reference that is not the policy, saved in `folder`."""
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    rollout.tokenizer.save_pretrained(folder)
    return model


def assert_same(one, other, atol=0.0):
    """Holds that two models have the same weights."""
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=atol, rtol=0)


def write(path, records):
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path


def credit_of(tree, advantages):
    """Credit that gives step n of the tree advantages[n]."""
    entries = [StepCredit(step=step, advantage=value) for step, value in enumerate(advantages)]
    return Credit(task=tree.task.id, method="test", steps=entries)
