"""Times a rollout on a world that waits: one process against workers of a Ray on this machine.

Every step of the world takes a while and no processor, as a remote service would. Printed are the seconds of sampling, and of the
whole command with starting and ending Ray.

    python scripts/bench_ray.py --workers 2 --tasks 24 --wait 0.2
"""

import argparse
import json
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from agentcli.environments.protocol import Card, Observation, Start
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

STEPS = 5


class Waiting:
    """A world whose only action is to wait."""

    card = Card(
        name="waiting",
        role="You wait.",
        splits=("train", "test"),
        evaluation_split="test",
    )

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.tasks_of_split = settings.options["tasks"]
        self.seconds = settings.options["seconds"]

    def tasks(self, split: str) -> list[Task]:
        """As many as the options say."""
        ids = [f"{split}/{number}" for number in range(self.tasks_of_split)]
        return [
            Task(id=name, world="waiting", split=split, kind="wait") for name in ids
        ]

    def engine(self) -> "Clock":
        """One that waits."""
        return Clock(self.seconds)


class Clock:
    """Its time is the number of steps."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._time = 0

    def start(self, task: Task) -> Start:
        """Sets the clock to 0."""
        self._time = 0
        return Start(instruction="Wait.", observation=self._look())

    def step(self, action: str) -> Observation:
        """Waits."""
        threading.Event().wait(self._seconds)
        self._time += 1
        return self._look()

    def _look(self) -> Observation:
        ended = self._time == STEPS
        return Observation(
            text=f"It is {self._time}.",
            actions=() if ended else ("wait",),
            state=str(self._time),
            reward=float(ended),
            end="success" if ended else None,
        )


def main() -> None:
    """Measures and prints."""
    options = _options()
    places = {
        "one process": [],
        f"{options.workers} workers": [
            "--on",
            "ray",
            "--workers",
            str(options.workers),
        ],
    }
    with TemporaryDirectory() as folder:
        runs = {}
        for number, (name, words) in enumerate(places.items()):
            runs[name] = Path(folder, str(number))
            _rollout(options, runs[name], words)
        first, second = ((run / "trees.jsonl").read_bytes() for run in runs.values())
        for name, run in runs.items():
            seconds = json.loads((run / "manifest.json").read_bytes())["stages"][
                "rollout"
            ]["seconds"]
            print(
                f"{name:12} sampling {seconds['sampling']:7.1f} s   command {seconds['wall']:7.1f} s"
            )
        print("the same bytes" if first == second else "OTHER BYTES")


def _rollout(options: argparse.Namespace, run: Path, words: list[str]) -> None:
    world = [
        "--env",
        f"{Path(__file__).resolve()}:Waiting",
        "--policy",
        "random",
        "--leaves",
        "1",
        "--concurrency",
        "4",
    ]
    settings = [
        f"environment.options.tasks={options.tasks}",
        f"environment.options.seconds={options.wait}",
    ]
    changes = [word for setting in settings for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "agentcli",
        "rollout",
        *world,
        *changes,
        *words,
        "-o",
        str(run),
        "-q",
    ]
    subprocess.run(command, check=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--wait", type=float, default=0.2, help="seconds of a step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
