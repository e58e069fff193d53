"""The fence of a rebuilding: what must stay as it is, byte for byte.

usage: python scripts/fence.py [--write] [--out DIR] [--data FILE]

Plays a small quickstart (demonstrations, sft, trees, every credit method, a training, a
loop and an evaluation), and takes the SHA-256 of every file, of every command's --help
and of every schema. Without --write they are compared with FILE (scripts/fence.json):
each that differs is named, and the exit code is 1.

Seconds, commands and checksums of manifests are left out, as in kill_and_resume.py.
Weights depend on the make of the processor, so FILE says which one wrote it.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

from kill_and_resume import AGENTCLI, digest

DATA = Path(__file__).with_name("fence.json")
WORLD = ("--preset", "quickstart", "-q")
STAGES = {
    "demos": ["demos", *WORLD, "--count", "60"],
    "sft": ["sft", "{out}/demos", *WORLD, "--set", "sft.updates=40"],
    "trees": ["rollout", *WORLD, "--method", "spark", "--tasks", "6"],
    "carl": ["rollout", *WORLD, "--method", "carl", "--tasks", "4"],
    "dpepo": ["rollout", *WORLD, "--method", "dpepo", "--tasks", "3"],
    "train": ["train", "{out}/trees", "--credit", "rewardflow", "-q"],
    "loop": [
        "run",
        "--preset",
        "quickstart",
        "-q",
        "--iterations",
        "2",
        "--tasks-per-iteration",
        "4",
    ],
}
"""Every stage's command, but for its -o; those that sample also get a --model."""
SAMPLING = ("trees", "carl", "dpepo", "loop")
CREDIT = {
    "trees": (
        "grpo",
        "rloo",
        "gigpo",
        "rewardflow",
        "spark",
        "treerl",
        "treerpo",
        "arpo",
    ),
    "carl": ("carl", "rlvmr"),
    "dpepo": ("dpepo",),
}


def agentcli(*words: str) -> str:
    """What one command prints. Ends the program if the command fails."""
    ended = subprocess.run(
        [*AGENTCLI, *words], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        sys.exit(f"agentcli {' '.join(words)}:\n{ended.stderr[-2000:]}")
    return ended.stdout


def play(out: Path) -> dict[str, str]:
    """The digest of every file of the small quickstart."""
    hashes = {}
    for name, words in STAGES.items():
        command = [word.format(out=out) for word in words]
        if name in SAMPLING:
            command += ["--model", f"{out}/sft/checkpoint"]
        agentcli(*command, "-o", str(out / name))
        for method in CREDIT.get(name, ()):
            agentcli("assign-credit", str(out / name), "--method", method, "-q")
    agentcli("eval", str(out / "loop"), *WORLD, "--tasks", "6", "--label", "small")
    for name in STAGES:
        for file, value in digest(out / name).items():
            hashes[f"{name}/{file}"] = value
    return hashes


def said() -> dict[str, str]:
    """The digest of every command's --help and of every schema."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from command_line import all_commands

    from agentcli.analysis.schema import kind_names

    texts = {
        f"{' '.join(words)} --help": [*words, "--help"] for words in all_commands()
    }
    for name in kind_names():
        texts[f"schema {name}"] = ["schema", name]
    hashes = {}
    for name, words in texts.items():
        hashes[name] = hashlib.sha256(agentcli(*words).encode()).hexdigest()
    return hashes


def main() -> None:
    """Writes the fence, or compares with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("fence"))
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; name another folder with --out")
    hashes = play(options.out) | said()
    if options.write:
        fence = {"processor": processor(), "sha256": hashes}
        options.data.write_text(json.dumps(fence, indent=1) + "\n", encoding="utf-8")
        return
    fence = json.loads(options.data.read_text(encoding="utf-8"))
    kept = fence["sha256"]
    moved = [name for name in {**kept, **hashes} if kept.get(name) != hashes.get(name)]
    if moved and fence["processor"] != processor():
        print(f"written on {fence['processor']}; this is {processor()}")
    for name in moved:
        print(f"differs: {name}")
    print(f"{len(hashes) - len(moved)} of {len(hashes)} are as they were")
    sys.exit(bool(moved))


def processor() -> str:
    """The make of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
