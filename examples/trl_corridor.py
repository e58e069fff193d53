"""A tiny GRPO run of TRL that learns with RewardFlow's advantages, in seconds on a CPU.

A model of a few thousand weights walks from room 0 to room 4 of a corridor; every room
has two doors, `left` and `right`, of which one leads on and the other one back. The
whole walk is one completion: door, room, door, room, ...

    python examples/trl_corridor.py
"""

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
)
from trl import GRPOConfig

sys.path.insert(0, str(Path(__file__).parent))
from trl_advantages import CreditTrainer

ROOMS = 5
MOST_STEPS = 8
DOORS = ("left", "right")
ONWARD = ("right", "left", "left", "right")
"""The door that leads on, by room; the other one leads a room back."""
WORDS = ("<pad>", "<end>", *DOORS, *(f"room{number}" for number in range(ROOMS)))


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = models.WordLevel({word: n for n, word in enumerate(WORDS)}, "<pad>")
    split = Tokenizer(words)
    split.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token="<pad>", eos_token="<end>"
    )


def model() -> LlamaForCausalLM:
    """A Llama of one layer, from its config."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


@torch.no_grad()
def walk(prompts: list[str], trainer: CreditTrainer) -> dict[str, list[Any]]:
    """Plays an episode for every prompt (TRL's rollout_func).

    The lists that agentcli reads travel along with what TRL asks for.
    """
    words = trainer.processing_class
    result: dict[str, list[Any]] = {}
    for prompt in prompts:
        asked = words.encode(prompt)
        tokens, logprobs, mask = [], [], []
        actions, rooms = [], [0]
        while rooms[-1] < ROOMS - 1 and len(actions) < MOST_STEPS:
            logits = trainer.model(torch.tensor([asked + tokens])).logits[0, -1]
            doors = torch.tensor(words.convert_tokens_to_ids(list(DOORS)))
            chances = logits.log_softmax(-1)
            door = int(torch.multinomial(chances[doors].exp(), 1))
            actions.append(DOORS[door])
            onward = DOORS[door] == ONWARD[rooms[-1]]
            rooms.append(max(0, rooms[-1] + (1 if onward else -1)))
            tokens += [int(doors[door]), *words.encode(f"room{rooms[-1]}")]
            logprobs += [float(chances[doors[door]]), 0.0]
            mask += [1, 0]
        states = [f"room{room}" for room in rooms]
        success = rooms[-1] == ROOMS - 1
        row = {
            "prompt_ids": asked,
            "completion_ids": tokens,
            "logprobs": logprobs,
            "env_mask": mask,
            "success": success or None,
            "states": states[:-1],
            "next_states": states[1:],
            "actions": actions,
        }
        for name, value in row.items():
            result.setdefault(name, []).append(value)
    return result


def reached(
    completions: list[str], success: list[bool | None], **_: Any
) -> list[float]:
    """TRL's reward function: 1 for an episode that reached the last room."""
    return [float(one is True) for one in success]


def make(folder: Path, updates: int, **chosen: Any) -> CreditTrainer:
    """The trainer; `chosen` are further arguments of CreditTrainer."""
    settings = GRPOConfig(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=16,
        num_generations=8,
        learning_rate=0.003,
        lr_scheduler_type="constant",
        beta=0.0,
        scale_rewards=chosen.pop("scale_rewards", "group"),
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    trainer = CreditTrainer(
        model=model(),
        reward_funcs=reached,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["room0"] * 16}),
        processing_class=tokenizer(),
        rollout_func=walk,
        **chosen,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


if __name__ == "__main__":
    trainer = make(Path("runs/trl-corridor"), updates=24, credit="rewardflow")
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
    print(f"mean reward of 5 updates: first {first:.2f}, last {last:.2f}")
