"""The memory and hours of the papers' presets on one GPU: an estimate from arithmetic and the assumptions below, nothing measured.

Memory is that of `agentcli run --dry-run`, with rows as long as the settings allow. Time counts the model alone: sampling reads the
weights and the cache from memory for every token, training multiplies 8 times a parameter and token, since activations are
computed again. Every trajectory is taken to have all its steps.

    python scripts/estimate_presets.py
    python scripts/estimate_presets.py spark-alfworld carl-alfworld --prompt 800 --response 100
    python scripts/estimate_presets.py --iteration       # the seconds of one iteration of spark-alfworld, by part
"""

import argparse
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from agentcli.records.settings import Settings
from agentcli.stages.layers import resolve
from agentcli.stages.memory import (
    Device,
    ModelSize,
    RowSize,
    cache_bytes,
    need_of_loop,
    sampled_rows,
    size_of,
)

GPU = Device("cuda", 80_000_000_000)
FLOPS = 0.4 * 989e12
"""Of a second: two fifths of what an H100 is sold with, in bfloat16."""
MEMORY_SPEED = 0.6 * 3.35e12
"""Bytes a second."""
HOUR = 3600


class Model(NamedTuple):
    """A model as its card describes it."""

    name: str
    hidden: int
    inner: int
    heads: int
    keys: int
    vocabulary: int
    tied: bool

    def size(self, rank: int) -> ModelSize:
        """Its size with an adapter of this rank; 0: all is trained."""
        from transformers import AutoModelForCausalLM, Qwen2Config

        config = Qwen2Config(
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=28,
            num_attention_heads=self.heads,
            num_key_value_heads=self.keys,
            vocab_size=self.vocabulary,
            tie_word_embeddings=self.tied,
        )
        return size_of(AutoModelForCausalLM, config, rank)


MODELS = (
    Model("1.5B", 1536, 8960, 12, 2, 151_936, tied=True),
    Model("7B", 3584, 18_944, 28, 4, 152_064, tied=False),
)
PRESETS = (
    "spark-alfworld",
    "carl-alfworld",
    "rewardflow-alfworld",
    "grpo-alfworld",
    "dpepo-alfworld",
)


RESPONSES = 2300
"""Of one iteration: 16 tasks x 8 leaves, 18 steps each on average."""
PROMPT, RESPONSE = 650, 110
NEW = 0.55
"""Share of a prompt that no sibling has computed (docs/lab/speed.md: 45 % is shared)."""
MFU = 0.22
"""Share of the peak that training reaches, with weights in float32 under autocast."""
PEAK = 989e12
DISK = 2e9
"""Bytes a second, read, hashed or written."""
STEP_SECONDS = 0.0022
"""Of an environment; measured: 3,840 steps in 8.6 s."""
START = 15.0
"""Seconds in which a process that trains imports and sets up; assumed."""


def iteration() -> None:
    """Prints the parts of one iteration of spark-alfworld, with their formulas."""
    table = Table("part", "1.5B, one GPU", "7B, eight GPUs", "formula")
    columns = []
    for model, gpus in zip(MODELS, (1, 8), strict=True):
        columns.append(_parts(model.size(0), gpus))
    for part, (_, formula) in columns[0].items():
        cells = [f"{column[part][0]:.0f}" for column in columns]
        table.add_row(part, *cells, formula)
    sums = [sum(value for value, _ in column.values()) for column in columns]
    table.add_row("sum", *[f"{value:.0f}" for value in sums], "")
    Console(width=140).print(table)


def _parts(size: ModelSize, gpus: int) -> dict[str, tuple[float, str]]:
    """Seconds and formula of every part, with P parameters and R responses."""
    parameters, tokens = size.all, RESPONSES * (PROMPT + RESPONSE)
    running = 128 / gpus
    row = RowSize(int(running), PROMPT + RESPONSE, RESPONSE)
    of_token = (2 * parameters + cache_bytes(size, row, 2)) / MEMORY_SPEED
    prefill = 2 * parameters * RESPONSES * PROMPT * NEW / (FLOPS * gpus)
    return {
        "engine wakes and reads": (2 * parameters / DISK, "2 P bytes / 2 GB/s"),
        "prompts": (prefill, "2 P R 650 x 0.55 / (0.4 x 989e12 x GPUs)"),
        "responses": (
            of_token * RESPONSE * RESPONSES / 128,
            "(2 P + cache) bytes / 2.0 TB/s x 110 R / 128 in flight",
        ),
        "environments, beside them": (
            0.0,
            f"{STEP_SECONDS * RESPONSES:.0f} s of one process, measured on a CPU",
        ),
        "process that trains": (START, "assumed"),
        "weights, moments: read, hashed": (
            20 * parameters / DISK,
            "20 P bytes / 2 GB/s",
        ),
        "reference": (
            2 * parameters * tokens / (MFU * PEAK * gpus),
            "2 P x 760 R / (0.22 x 989e12 x GPUs)",
        ),
        "updates": (
            8 * parameters * tokens / (MFU * PEAK * gpus),
            "8 P x 760 R / (0.22 x 989e12 x GPUs)",
        ),
        "weights, moments: written": (12 * parameters / DISK, "12 P bytes / 2 GB/s"),
    }


def main() -> None:
    """Prints a line for each preset, model and way to train."""
    options = _options()
    if options.iteration:
        iteration()
        return
    table = Table(
        "preset",
        "model",
        "trained",
        "memory GB",
        "sampling h",
        "training h",
        title="estimates, not measured",
    )
    for name in options.presets:
        settings = resolve(name)
        iterations = settings.run.iterations
        for model in MODELS:
            for rank in sorted({settings.train.lora.rank, 16}):
                size = model.size(rank)
                memory = need_of_loop(size, settings, GPU).total
                fits = "" if memory <= GPU.free else " (too much)"
                responses = settings.rollout.tasks_per_step * settings.rollout.leaves
                responses *= settings.environment.max_steps
                sampling = _sampling_seconds(settings, size, responses, options)
                tokens = responses * (options.prompt + options.response)
                training = 8 * size.all * tokens * settings.train.epochs / FLOPS
                hours = [
                    f"{iterations * seconds / HOUR:.0f}"
                    for seconds in (sampling, training)
                ]
                trained = f"LoRA {rank}" if rank else "all"
                table.add_row(
                    name, model.name, trained, f"{memory / 1e9:.0f}{fits}", *hours
                )
    Console(width=100).print(table)


def _sampling_seconds(
    settings: Settings, size: ModelSize, responses: int, options: argparse.Namespace
) -> float:
    """The seconds of one iteration's rollout."""
    rows = sampled_rows(settings).rows
    read = 2 * size.all * options.prompt * responses / FLOPS
    row = RowSize(rows, options.prompt + options.response, options.response)
    of_token = (2 * size.all + cache_bytes(size, row, 2)) / MEMORY_SPEED
    return read + of_token * options.response * responses / rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--iteration", action="store_true")
    parser.add_argument("--prompt", type=int, default=800, help="tokens of a prompt")
    parser.add_argument(
        "--response", type=int, default=100, help="tokens of a response"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
