"""The figures of the house, of a package small enough to count by hand, and the way of one step in the real one."""

from pathlib import Path

import measure_house
import pytest

SOURCE = '''"""A docstring is no code."""

# a comment
class Twice:
    """Neither is this."""

    criterion: int = 1


class _Twice:
    pass
'''
PROTOCOL = '''"""Protocols."""


class World:
    """A world."""

    card: str
    _hidden: int

    def engine(self) -> None: ...


class Engine:
    """An engine."""

    def step(self) -> None: ...
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    environments = tmp_path / "agentcli" / "environments"
    environments.mkdir(parents=True)
    (tmp_path / "agentcli" / "top.py").write_text(SOURCE)
    (environments / "protocol.py").write_text(PROTOCOL)
    return tmp_path


def test_a_small_package_is_counted(tree: Path) -> None:
    figures = measure_house.measure_sources(tree)
    assert figures["code lines"] == 4 + 6
    assert figures["syntax nodes"] == sum(figures["syntax nodes by package"].values())
    assert figures["lines by package"] == {"(top)": 11, "environments": 16}
    assert figures["comment lines"] == 1
    assert figures["longest line of code"] == len("    def engine(self) -> None: ...")
    assert figures["longest line of text"] == len('"""A docstring is no code."""')
    assert figures["class names with two meanings"] == 0
    assert figures["class names with two meanings, with _"] == 1
    assert figures["world members by name"] == ["World.card", "World.engine", "Engine.step"]
    assert figures["knob places by name"] == ["agentcli/top.py"]


def test_every_node_counts(tmp_path: Path) -> None:
    """`x = 1` is a module, an assignment, a name, its context and a constant."""
    (tmp_path / "agentcli" / "environments").mkdir(parents=True)
    (tmp_path / "agentcli" / "environments" / "protocol.py").write_text("x = 1\n")
    figures = measure_house.measure_sources(tmp_path)
    assert figures["syntax nodes by package"] == {"environments": 5}
    assert figures["nodes a code line"] == 5


def test_the_way_of_a_step_goes_down_the_floors() -> None:
    hops = measure_house.measure_hops(measure_house.ROOT)
    assert hops[0] == "cli/app.py:main"
    assert hops[-1] == "worlds/alfworld/engine.py:step"
    rooms = list(dict.fromkeys(hop.partition("/")[0] for hop in hops))
    assert rooms == ["cli", "stages", "exploration", "environments", "worlds"]
