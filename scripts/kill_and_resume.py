"""Kills commands with SIGKILL at random moments, resumes them, and compares the bytes.

usage: python scripts/kill_and_resume.py [--out DIR] [--kills 20] [--seed 0]
                                         [rollout] [train] [run] [sft] [demos]

Every command is first run undisturbed. Then it is started, killed after a random part
of that time and started again with --resume, until so many kills have hit. When it gets
through in between, what it left is compared and it begins anew.

Trees, credit, weights, optimiser state, metrics (but for their seconds) and the counts
and ledgers of manifests must be those of the undisturbed run, byte for byte. Nothing
may be left over: no partial file, snapshot or engine process. A killed process leaves
its .lock file, which holds nothing. Exit code 1 if anything differs.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

AGENTCLI = (sys.executable, "-m", "agentcli")
SMALL = (
    "--set",
    "run.iterations=3",
    "--set",
    "rollout.tasks_per_step=6",
    "--set",
    "train.save_every_updates=2",
)
VOLATILE = (
    "seconds",
    "layers",
    "outputs",
    "started",
    "finished",
    "command",
    "inputs",
    "settings",
    "versions",
    "git_commit",
)


def prepare(out: Path) -> dict[str, list[str]]:
    """A tiny policy and a credited rollout to train on; gives each command without its
    -o.
    """
    model = str(out / "sft" / "checkpoint")
    demos = ["demos", "--preset", "quickstart", "--count", "80"]
    sft = [
        "sft",
        str(out / "demos"),
        "--preset",
        "quickstart",
        "--set",
        "sft.updates=150",
    ]
    rollout = ["rollout", "--preset", "quickstart", "--model", model, "--tasks", "40"]
    train = [
        "train",
        str(out / "rollout"),
        "--set",
        "train.epochs=2",
        "--set",
        "train.save_every_updates=2",
    ]
    loop = ["run", "--preset", "quickstart", "--model", model, *SMALL]
    return {"demos": demos, "sft": sft, "rollout": rollout, "train": train, "run": loop}


def start(command: list[str], out: Path, log: Path) -> "subprocess.Popen[bytes]":
    """The command in a session of its own, so that what it leaves behind can be found."""
    with open(log, "ab") as file:
        return subprocess.Popen(
            [*AGENTCLI, *command, "-o", str(out), "--resume"],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def finish(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for an exit code of 0; the log is shown otherwise."""
    if process.wait() != 0:
        sys.exit(
            f"{' '.join(map(str, process.args))}\nended with "
            f"{process.returncode}:\n{log.read_text()[-3000:]}"
        )  # type: ignore[arg-type]


def survivors(session: int) -> list[int]:
    """Processes of a session that are alive."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                alive.append(int(stat.parent.name))
    return alive


def wait_for_nobody(session: int, seconds: float = 20.0) -> None:
    """An engine process ends by itself when its parent is gone."""
    until = time.monotonic() + seconds
    for process in survivors(session):
        with (
            contextlib.suppress(ProcessLookupError),
            os.fdopen(os.pidfd_open(process)) as handle,
        ):
            if not select.select([handle], [], [], max(0, until - time.monotonic()))[0]:
                sys.exit(
                    f"process {process} outlives its killed parent by {seconds:.0f} s"
                )


def digest(run: Path) -> dict[str, str]:
    """What must be the same, by file."""
    hashes = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if (
            not path.is_file()
            or path.parent.name in ("logs", "settings")
            or path.name in (".lock", "seconds.jsonl")
        ):
            continue
        if path.name == "manifest.json":
            stages = json.loads(path.read_bytes())["stages"]
            data = json.dumps(
                [
                    {k: v for k, v in stage.items() if k not in VOLATILE}
                    for stage in stages.values()
                ]
            ).encode()
        elif path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            data = json.dumps(
                [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
            ).encode()
        else:
            data = path.read_bytes()
        hashes[name] = hashlib.sha256(data).hexdigest()
    return hashes


def compare(name: str, expected: dict[str, str], run: Path) -> None:
    """Ends the program at the first difference."""
    hashes = digest(run)
    for path in sorted({*expected, *hashes}):
        if expected.get(path) != hashes.get(path):
            problem = "differs"
            if path not in hashes:
                problem = "is missing"
            elif path not in expected:
                problem = "is left over"
            sys.exit(f"{name}: {run / path} {problem}")


def torment(
    name: str,
    command: list[str],
    undisturbed: Path,
    kills: int,
    wall: float,
    draw: random.Random,
) -> int:
    """Kill `kills` times; gives how often the command got through and was found the
    same.
    """
    run = undisturbed.with_name(f"{name}-killed")
    log = run.with_suffix(".log")
    shutil.rmtree(run, ignore_errors=True)
    log.unlink(missing_ok=True)
    expected, through, hit = digest(undisturbed), 0, 0
    while hit < kills:
        process = start(command, run, log)
        try:
            process.wait(timeout=draw.uniform(0, wall))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            wait_for_nobody(process.pid)
            hit += 1
            print(f"\r{name}: {hit}/{kills} kills", end="", file=sys.stderr, flush=True)
            continue
        finish(process, log)
        compare(name, expected, run)
        shutil.rmtree(run)
        through += 1
    finish(start(command, run, log), log)
    compare(name, expected, run)
    print(file=sys.stderr)
    return through + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("stages", nargs="*", help="rollout, train and run without any")
    parser.add_argument("--out", type=Path, default=Path("killed"))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stages = options.stages or ["rollout", "train", "run"]
    commands = prepare(options.out)
    if unknown := [name for name in stages if name not in commands]:
        parser.error(f"no command {unknown[0]}; there are {', '.join(commands)}")
    if options.out.exists():
        parser.error(f"{options.out} exists; name another folder with --out")
    options.out.mkdir(parents=True)
    walls = {}
    for name, command in commands.items():
        begun, log = time.monotonic(), options.out / f"{name}.log"
        finish(start(command, options.out / name, log), log)
        walls[name] = time.monotonic() - begun
        if name == "rollout":
            subprocess.run(
                [*AGENTCLI, "assign-credit", str(options.out / name), "-q"], check=True
            )
        print(f"{name}: undisturbed in {walls[name]:.1f} s", file=sys.stderr)
    for name in stages:
        draw = random.Random(f"{options.seed} {name}")
        undisturbed = options.out / name
        if name == "rollout":
            undisturbed = options.out / "rollout-alone"
            shutil.copytree(
                options.out / name, undisturbed, ignore=shutil.ignore_patterns("credit")
            )
            (undisturbed / "manifest.json").write_text(
                json.dumps(only(undisturbed, "rollout"))
            )
        same = torment(
            name, commands[name], undisturbed, options.kills, walls[name], draw
        )
        print(
            f"{name}: {options.kills} kills, {same} times at the end, each time the "
            "same bytes as undisturbed"
        )


def only(run: Path, stage: str) -> dict[str, object]:
    """A manifest with one of its stages."""
    manifest = json.loads((run / "manifest.json").read_bytes())
    return {**manifest, "stages": {stage: manifest["stages"][stage]}}


if __name__ == "__main__":
    main()
