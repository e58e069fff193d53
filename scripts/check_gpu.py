"""Two steps of check_gpu.sh: figures of two runs compared, and speed beside memory.

usage: python scripts/check_gpu.py same RUN RUN
       python scripts/check_gpu.py speed DIR [--small]

same    Loss and gradient norm of every update of both runs agree to 2 %: bfloat16 has
        three digits. Exit code 1 otherwise.
speed   Makes models with random weights in the shape of Qwen2.5-0.5B and 1.5B, and
        trains each on DIR/trees, in full and with an adapter. DIR/speed.json has a line
        for each training: tokens/s, the share of the device's peak (MFU; 8 operations a
        parameter and token, since activations are recomputed), and the most memory
        that torch held beside the estimate of --dry-run. --small takes a tiny shape.
"""

import gc
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOLERANCE = 0.02
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "4090": 165e12}
"""Operations a second in bfloat16, without sparsity, by part of the device's name."""
SHAPES = {
    "0.5B": (896, 4864, 24, 14, 2, 151_936),
    "1.5B": (1536, 8960, 28, 12, 2, 151_936),
}
SMALL = {"tiny": (64, 128, 2, 4, 2, 2000)}
"""Width, width of the inner layers, layers, heads, key-value heads, vocabulary."""
TRAININGS = {"full": (), "lora": ("--lora", "16")}


def figures(run: Path) -> Iterator[dict[str, Any]]:
    """The metrics of a training, or of every iteration of a loop."""
    for file in sorted(
        [*run.glob("metrics.jsonl"), *run.glob("iteration_*/metrics.jsonl")]
    ):
        if file.parent == run and any(run.glob("iteration_*")):
            continue
        for line in file.read_bytes().splitlines():
            yield json.loads(line)


def same(one: Path, other: Path) -> None:
    """Ends the program where two runs differ by more than TOLERANCE."""
    pairs = list(zip(figures(one), figures(other), strict=True))
    if not pairs:
        sys.exit(f"{one} and {other} hold no metrics")
    for number, (left, right) in enumerate(pairs):
        for name in ("loss", "grad_norm"):
            gap = abs(left[name] - right[name])
            if gap > TOLERANCE * max(abs(left[name]), abs(right[name]), 0.01):
                sys.exit(f"update {number}: {name} {left[name]} and {right[name]}")
    print(f"{len(pairs)} updates agree to {TOLERANCE:.0%}")


def make(folder: Path, shape: tuple[int, ...], like: Path) -> Path:
    """A model with random weights, and the tokenizer of the tiny policy `like`."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    hidden, intermediate, layers, heads, kv_heads, vocabulary = shape
    tokenizer = AutoTokenizer.from_pretrained(like)
    config = Qwen2Config(
        vocab_size=max(vocabulary, len(tokenizer)),
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    shutil.copytree(like, folder)
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def command(*words: str) -> None:
    """One command in this process, so that torch's memory can be read afterwards."""
    from agentcli.cli.app import main

    sys.argv = ["agentcli", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"agentcli {' '.join(words)} ended with {end.code}")


def expected(*words: str) -> dict[str, Any]:
    """What --dry-run says of a command."""
    import contextlib
    import io

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        command(*words, "--dry-run", "--json")
    return dict(json.loads(output.getvalue())["expected"])


def measure(trees: Path, model: Path, kind: str) -> dict[str, Any]:
    """One training on a rollout: its speed, and its memory beside the estimate."""
    import torch

    on_gpu = torch.cuda.is_available()
    out = trees.with_name(f"{model.name}-{kind}")
    words = ["train", str(trees), "--model", str(model), *TRAININGS[kind]]
    words += ["-q", "-o", str(out)]
    estimate = expected(*words)
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    command(*words)
    lines = list(figures(out))
    seconds = sum(line["seconds"] for line in lines)
    tokens = sum(line["tokens_read"] - line["tokens_saved"] for line in lines)
    record = json.loads((out / "manifest.json").read_bytes())["stages"]["train"]
    result: dict[str, Any] = {
        "model": model.name,
        "training": kind,
        "tokens": tokens,
        "tokens/s": round(tokens / seconds, 1),
        "estimated bytes": estimate["memory_bytes"],
    }
    if not on_gpu:
        return result
    device = torch.cuda.get_device_name()
    peak = next((value for name, value in PEAKS.items() if name in device), None)
    parameters = record["statistics"]["parameters"]
    result["device"] = device
    result["most bytes"] = torch.cuda.max_memory_allocated()
    if peak is not None:
        result["MFU"] = round(8 * parameters * tokens / seconds / peak, 3)
    return result


def speed(out: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Writes speed.json, a line for each model and training."""
    lines = []
    for name, shape in shapes.items():
        model = make(out / f"model-{name}", shape, out / "sft" / "checkpoint")
        lines += [measure(out / "trees", model, kind) for kind in TRAININGS]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (out / "speed.json").write_text(text, encoding="utf-8")


def main(words: list[str]) -> None:
    """Runs one of the two steps."""
    match words:
        case ["same", one, other]:
            same(Path(one), Path(other))
        case ["speed", out]:
            speed(Path(out), SHAPES)
        case ["speed", out, "--small"]:
            speed(Path(out), SMALL)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
