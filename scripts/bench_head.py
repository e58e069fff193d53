"""Peak memory and time of the language-model head: all logits at once against chunks.

Each way runs in a process of its own: log-probabilities and entropies of some response
tokens, forward and backward, through a model of one layer with the vocabulary and width
of Qwen2.5-0.5B. Printed are the peak above what the process held before, CPU seconds,
the ratios, and how far log-probabilities and the head's gradient lie apart.

    python scripts/bench_head.py --tokens 1024 --bf16
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentcli.training.loop import forward
from agentcli.training.loop.microbatches import row_batch
from agentcli.training.policy_gradient.losses import entropies_look

WAYS = ("whole", "chunks")
SIZES = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
"""Of Qwen2.5-0.5B."""
ROW = 128
"""Response tokens of a row."""


def main() -> None:
    """Runs both ways and prints."""
    options = _options()
    torch.set_num_threads(options.threads)
    if options.way:
        torch.save(_measured(options), options.out)
        return
    results = {}
    for way in WAYS:
        with tempfile.NamedTemporaryFile() as file:
            again = [*sys.argv, "--way", way, "--out", file.name]
            subprocess.run([sys.executable, *again], check=True)
            results[way] = torch.load(file.name)
        mebibytes = results[way]["kibibytes"] / 1024
        print(f"{way:6} {mebibytes:8.0f} MiB {results[way]['seconds']:8.2f} CPU s")
    whole, chunks = results.values()
    for name in ("kibibytes", "seconds"):
        print(f"{name}: whole / chunks = {whole[name] / chunks[name]:.2f}")
    for name in ("logprobs", "gradient"):
        gap = (whole[name] - chunks[name]).abs().max()
        print(f"{name}: apart by {gap:.1e}, largest {whole[name].abs().max():.1e}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1024, help="response tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="under autocast")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measured(options: argparse.Namespace) -> dict[str, Tensor | float]:
    """Figures and results of one way, in this process."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(num_hidden_layers=1, **SIZES))
    rows = [([5, 6], list(range(7, 7 + ROW))) for _ in range(options.tokens // ROW)]
    batch = row_batch(rows, 0, None)
    temperatures_N = torch.full((len(batch["targets_N"]),), 0.4)
    if options.way == "whole":
        forward.LOGITS_AT_ONCE = sys.maxsize
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _kibibytes("VmRSS")
    started = time.process_time()
    with forward.precision(torch.device("cpu"), options.bf16):
        logprobs_N, _ = forward.target_scores(
            model, batch, temperatures_N, [entropies_look(temperatures_N)]
        )
    logprobs_N.mean().backward()
    seconds = time.process_time() - started
    return {
        "kibibytes": _kibibytes("VmHWM") - before,
        "seconds": seconds,
        "logprobs": logprobs_N.detach(),
        "gradient": model.lm_head.weight.grad,
    }


def _kibibytes(name: str) -> int:
    """A figure of this process by its name in Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


if __name__ == "__main__":
    main()
