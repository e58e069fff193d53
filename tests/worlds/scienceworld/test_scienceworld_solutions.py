"""Every task's own solution, played in two Java processes: the same words and scores in both, and all points."""

from collections.abc import Iterator

import pytest
from agentcli.worlds.scienceworld.engine import ALL
from agentcli.worlds.scienceworld.simulator import Simulator, gold_path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def simulators() -> Iterator[tuple[Simulator, Simulator]]:
    both = Simulator(512), Simulator(512)
    yield both
    for simulator in both:
        simulator.close()


@pytest.mark.parametrize("kind", ALL)
def test_a_solution_is_the_same_in_every_process(kind: str, simulators: tuple[Simulator, Simulator]) -> None:
    path = gold_path(simulators[0], kind, 1, "easy")
    plays = []
    for simulator in simulators:
        game = simulator.game()
        game.open(kind, 1, "easy")
        moments = [game.step(action) for action in ("look around", *path)]
        plays.append((moments, game._ask("getObjectTree", "")))
    assert plays[0] == plays[1]
    assert plays[0][0][-1].score == 100
