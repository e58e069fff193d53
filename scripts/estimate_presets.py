"""The memory and hours of the papers' presets on one GPU: an estimate from arithmetic and the assumptions below, nothing measured.

Memory is that of `agentcli run --dry-run`, with rows as long as the settings allow. Time counts the model alone: sampling reads the
weights and the cache from memory for every token, training multiplies 8 times a parameter and token, since activations are
computed again. Every trajectory is taken to have all its steps.

    python scripts/estimate_presets.py
    python scripts/estimate_presets.py spark-alfworld carl-alfworld --prompt 800 --response 100
    python scripts/estimate_presets.py --iteration       # the seconds of one iteration of spark-alfworld, by part
    python scripts/estimate_presets.py --studies         # writes gpu_hours into the paper sizes of studies/
"""

import argparse
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from agentcli.records.settings import Settings
from agentcli.records.study import Study
from agentcli.stages import layers
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
    layers: int
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
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.keys,
            vocab_size=self.vocabulary,
            tie_word_embeddings=self.tied,
        )
        return size_of(AutoModelForCausalLM, config, rank)


MODELS = (
    Model("1.5B", 1536, 8960, 28, 12, 2, 151_936, tied=True),
    Model("7B", 3584, 18_944, 28, 28, 4, 152_064, tied=False),
)
OTHERS = (
    Model("3B", 2048, 11_008, 36, 16, 2, 151_936, tied=True),
    Model("4B", 2560, 9728, 36, 32, 8, 151_936, tied=True),
    Model("8B", 4096, 14_336, 32, 32, 8, 128_256, tied=False),
)
"""Further models of the studies: Qwen2.5-3B and its vision model's part that reads text,
Qwen3-4B without its wider heads, Llama 3.1.
"""
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
    if options.studies:
        studies(options)
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
        settings = layers.resolve(name)
        iterations = settings.run.iterations
        for model in MODELS:
            for rank in sorted({settings.train.lora.rank, 16}):
                size = model.size(rank)
                memory = need_of_loop(size, settings, GPU).total
                fits = "" if memory <= GPU.free else " (too much)"
                hours = [
                    f"{iterations * seconds / HOUR:.0f}"
                    for seconds in _loop_seconds(settings, size, options)
                ]
                trained = f"LoRA {rank}" if rank else "all"
                table.add_row(
                    name, model.name, trained, f"{memory / 1e9:.0f}{fits}", *hours
                )
    Console(width=100).print(table)


def studies(options: argparse.Namespace) -> None:
    """Writes the hours of every paper size into its file, and prints them."""
    from agentcli.stages.study import list_studies, read_study

    table = Table("study", "size", "hours of one H100", title="estimates, not measured")
    for path in list_studies():
        text = path.read_text(encoding="utf-8")
        for size in re.findall(r"^  (paper[\w-]*):$", text, re.MULTILINE):
            hours = float(f"{_study_hours(read_study(path, size), options):.2g}")
            text = _with_hours(text, size, hours)
            table.add_row(path.stem, size, f"{hours:,.0f}")
        path.write_text(text, encoding="utf-8")
    Console(width=100).print(table)


def _with_hours(text: str, size: str, hours: float) -> str:
    """The text of a study with `gpu_hours` at the end of a size."""
    head, place, tail = text.partition(f"\n  {size}:\n")
    own, *further = re.split(r"(?m)^(?=  \S)", tail, maxsplit=1)
    own = re.sub(r"(?m)^    gpu_hours: .*\n", "", own).rstrip("\n")
    return f"{head}{place}{own}\n    gpu_hours: {hours:g}\n" + "".join(further)


def _study_hours(study: Study, options: argparse.Namespace) -> float:
    """Sampling and updates of the loops of all arms, with one seed.

    Responses are as long as the paper says for its reference, if it says that.
    """
    seconds = 0.0
    for result in study.results:
        if result.measure == "tokens_per_step" and study.reference in result.figures:
            length = round(result.figures[study.reference])
            options = argparse.Namespace(prompt=options.prompt, response=length)
    with TemporaryDirectory() as folder:
        for arm in study.arms:
            file = Path(folder) / "arm.json"
            own = layers.overlay(study.settings, study.settings_of(arm))
            file.write_text(json.dumps(own), encoding="utf-8")
            settings = layers.resolve(study.preset, [file])
            start = study.starts[study.start_of(arm)]
            size = _model_of(start.model or settings.sft.model).size(0)
            of_one = sum(_loop_seconds(settings, size, options))
            seconds += settings.run.iterations * of_one
    return seconds / HOUR


def _model_of(name: str) -> Model:
    """The model whose size a hub id names."""
    by_size = {model.name: model for model in (*MODELS, *OTHERS)}
    (found,) = [part for part in name.split("-") if part in by_size]
    return by_size[found]


def _loop_seconds(
    settings: Settings, size: ModelSize, options: argparse.Namespace
) -> tuple[float, float]:
    """The seconds of one iteration's rollout, and of its updates."""
    _, of_tree = settings.rollout.most(settings.environment.max_steps)
    responses = settings.rollout.tasks_per_step * of_tree
    tokens = responses * (options.prompt + options.response)
    training = 8 * size.all * tokens * settings.train.epochs / FLOPS
    return _sampling_seconds(settings, size, responses, options), training


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
    parser.add_argument("--studies", action="store_true")
    parser.add_argument("--prompt", type=int, default=800, help="tokens of a prompt")
    parser.add_argument(
        "--response", type=int, default=100, help="tokens of a response"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
