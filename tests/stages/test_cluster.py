"""Growing trees in workers, without Ray: a worker is a plain object here, and what it takes and gives is JSON.

test_ray.py runs workers in real clusters.
"""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from agentcli.errors import AgentCliError
from agentcli.exploration.nodes import errored_tree
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import ClusterSettings, PolicySettings, Settings, VllmSettings
from agentcli.records.trees import validate_tree
from agentcli.records.types import Outcome
from agentcli.stages.backend import TreeJob
from agentcli.stages.cluster import WorkerSlots, _gpus, _start
from agentcli.stages.remote import (
    RemoteAnswer,
    RemoteFault,
    RemoteReport,
    RemoteStage,
    RemoteTree,
    RemoteWorker,
    remote_stage,
)
from agentcli.stages.rollout import RolloutPlan, plan
from agentcli.stages.tally import Tally
from command_line import agentcli
from grown_runs import roll, toy
from refusal import refused
from resting import heard

ROLLOUT = ("rollout", "--env", "toy_world:ToyWorld", "--policy", "random", "-o", "new")


def a_plan(folder: Path) -> RolloutPlan:
    return plan(toy("spark"), folder / "there", model=None)


def answers(stage: RemoteStage, *jobs: TreeJob) -> list[RemoteAnswer]:
    """What a worker says of a stage, and gives for its tasks."""
    sent = msgspec.json.encode(stage)

    async def work() -> list[bytes]:
        worker = RemoteWorker()
        try:
            calls = [worker.grow(sent, msgspec.json.encode(job)) for job in jobs]
            return [await worker.prepare(sent), *await asyncio.gather(*calls)]
        finally:
            await worker.close()

    return [msgspec.json.decode(answer, type=RemoteAnswer) for answer in asyncio.run(work())]


def test_a_worker_gives_the_trees_of_this_process(tmp_path: Path) -> None:
    rollout = a_plan(tmp_path)
    roll(rollout.settings, tmp_path / "here")
    report, *grown = answers(remote_stage(rollout), *(TreeJob(task, rollout.seed) for task in rollout.panel.tasks))
    assert isinstance(report, RemoteReport)
    trees = []
    for answer in grown:
        assert isinstance(answer, RemoteTree)
        assert answer.seconds.task == answer.tree.task.id
        trees.append(answer.tree)
    lines = [msgspec.json.encode(tree) + b"\n" for tree in trees]
    assert b"".join(lines) == RunDirectory(tmp_path / "here").trees.read_bytes()


def test_a_worker_rests_at_the_end_of_its_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(monkeypatch)
    stages = [remote_stage(plan(toy("spark", tasks=count), tmp_path / "there", model=None)) for count in (1, 2)]
    for stage in stages:
        stage.model = "model"

    async def work() -> None:
        worker = RemoteWorker()
        for stage in stages:
            report = msgspec.json.decode(await worker.prepare(msgspec.json.encode(stage)), type=RemoteAnswer)
            assert report.node
            await worker.rest()
        await worker.close()

    asyncio.run(work())
    assert said == ["start", "rest", "load", "rest", "close"]


@pytest.mark.parametrize(
    ("policy", "there", "wanted", "gpus"),
    [
        (PolicySettings(kind="vllm", vllm=VllmSettings(tensor_parallel=2)), 8, None, 2),
        (PolicySettings(kind="vllm", vllm=VllmSettings(tensor_parallel=2, replicas=3)), 8, None, 6),
        (PolicySettings(kind="vllm"), 8, None, 1),
        (PolicySettings(kind="vllm"), 0, None, 0),
        (PolicySettings(kind="transformers", vllm=VllmSettings(tensor_parallel=2)), 8, None, 1),
        (PolicySettings(kind="random"), 8, None, 0),
        (PolicySettings(kind="vllm"), 8, 0.5, 0.5),
    ],
)
def test_a_worker_gets_the_gpus_that_its_model_takes(
    policy: PolicySettings, there: int, wanted: float | None, gpus: float
) -> None:
    class Machines:
        """What Ray says of a cluster."""

        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 8.0, "GPU": float(there)}

    settings = Settings(policy=policy, cluster=ClusterSettings(gpus=wanted))
    assert _gpus(settings, Machines()) == gpus


def refusal_of(stage: RemoteStage) -> str:
    (answer,) = answers(stage)
    assert isinstance(answer, RemoteFault)
    error = answer.error()
    assert isinstance(error, AgentCliError)
    return refused(_raising(error), error.exit_code, names="worker on ")


def _raising(error: AgentCliError) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("name", ["agentcli", "agentcli's source", "msgspec"])
def test_a_worker_of_another_version_is_refused(tmp_path: Path, name: str) -> None:
    stage = remote_stage(a_plan(tmp_path))
    stage.versions[name] += ".1"
    assert name in refusal_of(stage)


def test_a_package_that_only_one_side_has_is_none_of_the_others_business(tmp_path: Path) -> None:
    stage = remote_stage(a_plan(tmp_path))
    stage.versions["trombone"] = "1.0"
    (report,) = answers(stage)
    assert isinstance(report, RemoteReport)


def test_a_worker_with_another_model_is_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"old")
    stage = remote_stage(a_plan(tmp_path))
    stage.hashes[str(weights)] = "0" * 64
    assert str(weights) in refusal_of(stage)
    weights.unlink()
    assert str(weights) in refusal_of(stage)


def test_a_worker_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    stage = remote_stage(a_plan(tmp_path))
    stage.folder = str(tmp_path / "elsewhere")
    assert stage.folder in refusal_of(stage)


def test_the_tree_of_a_task_that_nobody_can_play_is_one_errored_leaf(tmp_path: Path) -> None:
    rollout = a_plan(tmp_path)
    tree = errored_tree(rollout.panel.tasks[0], "spark", rollout.seed, "three workers ended")
    validate_tree(tree)
    tally = Tally()
    tally.add(tree)
    assert (tally.counts["errored"], tally.counts["leaves"], tree.ledger.steps) == (1, 1, 0)
    assert tree.steps[0].outcome is Outcome.ERRORED


def test_a_task_that_is_alone_waits_for_the_others_and_they_for_it() -> None:
    order: list[str] = []

    async def task(seat: WorkerSlots, name: str, alone: bool = False) -> None:
        async with seat.place(alone=alone):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    async def work() -> None:
        seat = WorkerSlots(None, 2)
        await asyncio.gather(task(seat, "a"), task(seat, "b"), task(seat, "c", alone=True), task(seat, "d"))
        assert seat.taken == 0

    asyncio.run(work())
    assert order.index("c in") > max(order.index("a out"), order.index("b out"))
    assert order.index("d in") > order.index("c out")


@pytest.fixture
def alone(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and no word of Ray's in the environment or at home."""
    monkeypatch.setenv("HOME", str(empty_folder))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("place", ["rya", "ray://", "ray://host", "ray://:1", "ray://host:x", ""])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    refused(agentcli(*ROLLOUT, f"--on={place}"), names="--on" if not place else "cluster.on")


@pytest.mark.usefixtures("alone")
def test_workers_without_a_cluster_are_refused() -> None:
    refused(agentcli(*ROLLOUT, "--workers", "3"), names="--workers", remedy="--on ray")


@pytest.mark.usefixtures("alone")
def test_no_cluster_is_joined_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(agentcli(*ROLLOUT, "--on", "ray://h:1"), 4, names="ray://h:1", remedy="RAY_AUTH_TOKEN_PATH=")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    refused(agentcli(*ROLLOUT, "--on", "ray"), names="RAY_AUTH_MODE", remedy="unset RAY_AUTH_MODE")


def test_a_ray_that_does_not_come_up_is_refused() -> None:
    class Busy:
        """What Ray does where its node is too slow to start."""

        def init(self, **options: object) -> None:
            raise Exception("The current node timed out\nduring startup.")

    refused(lambda: _start(Busy(), 2, "folder"), 4, names=("cluster.on ray", "timed out"), remedy="--on local")


@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_line_says_how_to_install_it() -> None:
    refused(agentcli(*ROLLOUT, "--on", "ray"), 4, names="ray", remedy="pip install 'agentcli[ray]'")


def test_a_worker_hands_on_the_pictures(tmp_path: Path) -> None:
    settings = toy(tasks=2, options={"pictures": True})
    rollout = plan(settings, tmp_path / "there", model=None)
    roll(settings, tmp_path / "here")
    _, *grown = answers(remote_stage(rollout), *(TreeJob(task, rollout.seed) for task in rollout.panel.tasks))
    pictures: dict[str, bytes] = {}
    for answer in grown:
        assert isinstance(answer, RemoteTree)
        pictures |= answer.pictures
    assert {f"{name}.png": png for name, png in pictures.items()} == {
        file.name: file.read_bytes() for file in (tmp_path / "here/pictures").iterdir()
    }
