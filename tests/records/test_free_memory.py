"""What is free is the least of what the machine, the groups of the process and its own limit leave."""

import gc
import resource
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from agentcli.records import free_memory as module
from agentcli.records.free_memory import free_memory, modules_passed_over
from agentcli.stages.backend import LocalSampler, TimedTree, TreeJob
from grown_runs import roll, toy
from processes import as_here

GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GiB available, and no group that has a limit."""
    (tmp_path / "meminfo").write_text("MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n", encoding="ascii")
    monkeypatch.setattr(module, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(module, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return tmp_path


def group(folder: Path, limit: str, most: str, use: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit).write_text(f"{most}\n", encoding="ascii")
    (folder / use).write_text(f"{used}\n", encoding="ascii")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n", encoding="ascii")


def test_what_the_machine_has_available(machine: Path) -> None:
    assert free_memory() == 8 * GIB
    (machine / "meminfo").unlink()
    assert free_memory() > 0


@pytest.mark.parametrize("limited", ["job/step", "job", "."])
def test_a_group_or_one_above_it_leaves_less(machine: Path, limited: str) -> None:
    names = ("memory.max", "max", "memory.current", 0)
    for folder in ("job/step", "job", "."):
        group(machine / "groups" / folder, *names)
    (machine / "cgroup").write_text("0::/job/step\n", encoding="ascii")
    assert free_memory() == 8 * GIB
    group(machine / "groups" / limited, "memory.max", str(3 * GIB), "memory.current", 2 * GIB, GIB // 2)
    assert free_memory() == 3 * GIB // 2


def test_groups_of_the_first_kind(machine: Path) -> None:
    """In a container: its path is the host's, and its limit lies at the root."""
    group(machine / "groups/memory", "memory.limit_in_bytes", str(2 * GIB), "memory.usage_in_bytes", 3 * GIB)
    (machine / "cgroup").write_text("5:cpu,memory:/docker/1f\n0::/\n", encoding="ascii")
    assert free_memory() == 0


def test_a_limit_on_the_address_space_leaves_what_is_not_used() -> None:
    code = "import resource; from agentcli.records.free_memory import free_memory; print(free_memory())"
    limit = 2**29
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit})); {code}"
    ended = subprocess.run(
        [sys.executable, "-c", limited], env=as_here(), capture_output=True, text=True, timeout=120, check=True
    )
    assert 0 < int(ended.stdout) < limit


@pytest.fixture
def thawed() -> Iterator[None]:
    """Undoes what conftest.py does, for one test."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_who_passes_over_objects_already_goes_on_to() -> None:
    """Nothing more is frozen, and nothing is thawed. The count may fall: what was frozen may still be freed."""
    new: list[str] = []
    with modules_passed_over():
        assert any(walked is new for walked in gc.get_objects())
    assert gc.get_freeze_count() > 10_000


@pytest.mark.usefixtures("thawed")
def test_collections_pass_over_what_there_was_before_only_inside() -> None:
    with modules_passed_over():
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_collections_pass_over_the_modules_while_trees_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = []
    grow = LocalSampler.grow

    def growing(sampler: LocalSampler, job: TreeJob) -> Awaitable[TimedTree]:
        frozen.append(gc.get_freeze_count())
        return grow(sampler, job)

    monkeypatch.setattr(LocalSampler, "grow", growing)
    roll(toy(), tmp_path / "run")
    assert min(frozen) > 10_000
    assert gc.get_freeze_count() == 0
