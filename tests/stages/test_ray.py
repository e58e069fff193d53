"""Rollouts in real Ray clusters on this machine; `scripts/test_ray.sh` runs them in an environment that has Ray.

Workers and nodes die at known moments: a task of the lethal world kills them.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Tree
from command_line import Answer, succeeded
from processes import as_here, below
from ray_cluster import Nodes, gone, greeting, listening
from refusal import refused
from small_study import STUDY
from toy_policy import made

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SECONDS = 300.0
TASKS = 24
TOY = f'environment: {{name: "toy_world:ToyWorld", options: {{tasks: {TASKS}, length: 3}}}}'
ROLLOUT = ("rollout", "-c", "toy.yaml", "-c", "world.yaml", "--concurrency", "4", "-q")
SEARCH = ("--policy", "search")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """A cluster for one test."""
    cluster = Nodes(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def folder(empty_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy policy's settings and 24 tasks."""
    base = made(tmp_path_factory.getbasetemp())
    Path("toy.yaml").write_text((base / "toy.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    Path("model").symlink_to(base / "sft" / "checkpoint")
    Path("world.yaml").write_text(TOY, encoding="utf-8")
    return empty_folder


def lethal(**options: object) -> None:
    """Makes the world one that kills at task 5."""
    graves = Path("graves").resolve()
    graves.mkdir()
    further = ", ".join(f"{name}: {value}" for name, value in options.items())
    Path("world.yaml").write_text(
        'environment: {name: "lethal_world:LethalWorld", options: '
        f'{{tasks: {TASKS}, length: 3, poison: train/5, graves: "{graves}", {further}}}}}',
        encoding="utf-8",
    )


def command(*words: str, **environment: str) -> Answer:
    """What the installed program answers in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "agentcli", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**as_here(), **environment},
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def expected(*words: str) -> bytes:
    """The trees of a rollout in one process."""
    succeeded(*ROLLOUT, *words, "-o", "local")
    return Path("local/trees.jsonl").read_bytes()


def grown(*words: str, **environment: str) -> bytes:
    """The trees of the same rollout elsewhere."""
    answer = command(*ROLLOUT, *words, "-o", "there", **environment)
    assert answer.code == 0, answer
    return Path("there/trees.jsonl").read_bytes()


@contextmanager
def at_gate(*words: str) -> "Iterator[subprocess.Popen[str]]":
    """A rollout that stands at its third task."""
    world = TOY.replace("toy_world:ToyWorld", "gated_world:GatedWorld")
    Path("world.yaml").write_text(world, encoding="utf-8")
    gate = Path("gate")
    gate.mkdir()
    for name in ("reached", "on"):
        os.mkfifo(gate / name)
    reached = os.open(gate / "reached", os.O_RDWR)
    process = subprocess.Popen(
        [sys.executable, "-m", "agentcli", *ROLLOUT, *SEARCH, *words, "-o", "there"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**as_here(), "GATE": str(gate.resolve()), "GATE_TASK": "train/2"},
    )
    try:
        assert select.select([reached], [], [], SECONDS)[0], "never came to the gate"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)
        os.close(reached)


def studied(folder: str, *words: str) -> bytes:
    """What a study has at the end."""
    answer = command("study", "s.yaml", "--only", "grpo", "--seeds", "0", "-o", folder, "-q", *words)
    assert answer.code == 0, answer
    return Path(folder, "study.json").read_bytes()


def deaths() -> int:
    """How often a task has killed."""
    return len(list(Path("graves").iterdir()))


@pytest.mark.usefixtures("folder")
def test_two_workers_give_the_bytes_of_one_process() -> None:
    policy = ("--model", "model")
    assert grown(*policy, "--on", "ray", "--workers", "2") == expected(*policy)


def test_a_study_gives_its_figures_in_a_cluster_too(empty_folder: Path) -> None:
    Path("s.yaml").write_text(STUDY, encoding="utf-8")
    assert studied("there", "--on", "ray", "--workers", "2") == studied("here")


@pytest.mark.usefixtures("folder")
def test_a_killed_worker_costs_no_tree() -> None:
    whole = expected(*SEARCH)
    lethal(doses=1)
    assert grown(*SEARCH, "--on", "ray") == whole
    assert deaths() == 1


@pytest.mark.usefixtures("folder")
def test_a_task_that_kills_its_workers_is_an_errored_tree_after_three() -> None:
    whole = expected(*SEARCH).splitlines()
    lethal()
    lines = grown(*SEARCH, "--on", "ray").splitlines()
    assert deaths() == 3
    assert lines[:5] == whole[:5]
    assert lines[6:] == whole[6:]
    trees = list(read_records(Path("there/trees.jsonl"), Tree))
    (step,) = trees[5].steps
    assert (step.outcome, trees[5].task.id) == ("errored", "train/5")


@pytest.mark.usefixtures("folder")
def test_a_killed_node_costs_no_tree(nodes: Nodes) -> None:
    whole = expected(*SEARCH)
    lethal(victim="node", doses=1)
    place = ("--on", f"ray://127.0.0.1:{nodes.client}", "--workers", "2")
    assert grown(*SEARCH, *place, **nodes.environment) == whole
    assert deaths() == 1


def test_a_cluster_refuses_another_token(folder: Path, nodes: Nodes) -> None:
    other = folder / "other"
    other.write_text("0" * 64, encoding="utf-8")
    place = f"ray://127.0.0.1:{nodes.client}"
    answer = command(*ROLLOUT, *SEARCH, "--on", place, "-o", "there", RAY_AUTH_TOKEN_PATH=str(other))
    refused(answer, 4, names=place)


@pytest.mark.usefixtures("folder")
def test_nothing_listens_without_a_token() -> None:
    with at_gate("--on", "ray") as process:
        ports = listening([process.pid, *below(process.pid)])
        assert len(ports) > 5
        open_ports = {address: answer for address in ports if (answer := greeting(*address))}
        # Figures about the machine are all that is given away.
        assert all(answer.startswith("# HELP") for answer in open_ports.values()), open_ports


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("strike", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_command_ends(strike: signal.Signals) -> None:
    with at_gate("--on", "ray") as process:
        children = below(process.pid)
        os.killpg(process.pid, strike) if strike == signal.SIGINT else process.kill()
        _, stderr = process.communicate(timeout=SECONDS)
        if strike == signal.SIGINT:
            refused(Answer(process.returncode, "", stderr), 130, remedy="--resume")
        gone(children)
    again = command(*ROLLOUT, *SEARCH, "-o", "there", "--resume")
    assert again.code == 0, again
