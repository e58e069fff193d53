"""TRL trains a model by GRPO in a world that `agentcli env serve` plays.

    agentcli env serve ezpoints --port 8100 --max-steps 12
    python trl_openenv.py http://127.0.0.1:8100 Qwen/Qwen3-0.6B --updates 200

The model acts by calling a tool, as in TRL's own OpenEnv examples.
"""

import argparse
from functools import partial

import torch
from datasets import Dataset
from openenv import GenericEnvClient
from trl import GRPOConfig, GRPOTrainer

PROMPT = "Play until the episode ends. Call act for every action.\n\n"


class ServedWorld:
    """One session of the server; TRL makes as many as there are rollouts."""

    def __init__(self, url):
        self._session = GenericEnvClient(base_url=url).sync()

    def reset(self, seed, **row):
        """Opens the task of the seed; what it says is added to the prompt."""
        first = self._session.reset(seed=seed)
        self.reward = 0.0
        self.done = first.done
        return f"{first.observation['instruction']}\n{shown(first)}"

    def act(self, action: str) -> str:
        """Takes one action in the world.

        Args:
            action: The action, written as the world writes it.

        Returns:
            What the world shows next.
        """
        if self.done:
            raise ValueError("the episode has ended")
        step = self._session.step({"action": action})
        self.reward += step.reward
        self.done = step.done
        return shown(step)


def shown(step):
    """What the model reads: the text, and the actions where the world lists them."""
    actions = ", ".join(step.observation["actions"])
    return step.observation["text"] + (f"\nActions: {actions}" if actions else "")


def rewards(environments, log_metric, **columns):
    """The sum of each episode's rewards; logs how many were played to their end."""
    log_metric(
        "played_to_the_end", sum(one.done for one in environments) / len(environments)
    )
    return [one.reward for one in environments]


def train(words=None):
    asked = argparse.ArgumentParser()
    asked.add_argument("url")
    asked.add_argument("model")
    asked.add_argument("--updates", type=int, default=200)
    asked.add_argument("--tasks", type=int, default=100)
    asked.add_argument("--turns", type=int, default=32)
    typed = asked.parse_args(words)
    # A row is a task: the generations of a group play the same one.
    prompts = [[{"role": "user", "content": PROMPT}]] * typed.tasks
    trainer = GRPOTrainer(
        model=typed.model,
        reward_funcs=rewards,
        environment_factory=partial(ServedWorld, typed.url),
        train_dataset=Dataset.from_dict(
            {"prompt": prompts, "seed": range(typed.tasks)}
        ),
        args=GRPOConfig(
            output_dir="trl",
            max_steps=typed.updates,
            num_generations=4,
            per_device_train_batch_size=4,
            max_completion_length=4096,
            max_tool_calling_iterations=typed.turns,
            chat_template_kwargs={"enable_thinking": False},
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            bf16=torch.cuda.is_available(),
        ),
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    train()
