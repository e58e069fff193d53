"""One simulator for the tests of a file; it is a child of this process, and other tests count those."""

from collections.abc import Iterator

import pytest
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.scienceworld.engine import ScienceWorldEngine
from agentcli.worlds.scienceworld.world import ScienceWorldWorld


@pytest.fixture(scope="module", autouse=True)
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the simulator's own solutions are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTCLI_CACHE", str(tmp_path_factory.getbasetemp() / "solutions"))
        yield


@pytest.fixture(scope="module")
def world(solutions: None) -> Iterator[ScienceWorldWorld]:
    made = make_world(EnvironmentSettings(name="scienceworld"))
    assert isinstance(made, ScienceWorldWorld)
    yield made
    made.close()


@pytest.fixture
def engine(world: ScienceWorldWorld) -> ScienceWorldEngine:
    return world.engine()
