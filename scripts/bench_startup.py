"""How much longer `agentcli --help` takes than an empty app with as many commands.

Paired runs, one after the other.

usage: python scripts/bench_startup.py [PAIRS]
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

FULL = "from agentcli.cli.app import main; main()"
EMPTY = """
import typer

app = typer.Typer()


def register(group, name):
    @group.command(name)
    def command() -> None:
        "Do nothing."


for name, inner in {commands!r}.items():
    if inner:
        group = typer.Typer()
        for part in inner:
            register(group, part)
        app.add_typer(group, name=name)
    else:
        register(app, name)
app()
"""


def command_tree() -> dict[str, list[str]]:
    """Command names; the subcommands of those that are groups."""
    from agentcli.cli.app import COMMANDS, GROUPS

    names: dict[str, list[str]] = {command.name: [] for command in COMMANDS}
    for group, commands in GROUPS.items():
        names[group] = [command.name for command in commands]
    return names


def seconds(program: str) -> float:
    """Wall time of one process that prints its help."""
    begun = time.perf_counter()
    root = Path(__file__).resolve().parents[1]
    subprocess.run(
        [sys.executable, "-c", program, "--help"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=root,
    )
    return time.perf_counter() - begun


def main(pairs: int) -> None:
    """Prints medians and the median ratio of the pairs."""
    empty_program = EMPTY.format(commands=command_tree())
    seconds(FULL), seconds(empty_program)
    times = [(seconds(empty_program), seconds(FULL)) for _ in range(pairs)]
    empty, full = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = sorted(full / empty for empty, full in times)
    print(
        f"{pairs} pairs: empty app {1000 * empty:.0f} ms, agentcli --help "
        f"{1000 * full:.0f} ms (medians)"
    )
    print(
        f"ratio: median {statistics.median(ratios):.2f}, from {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}; the limit is 1.5"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
