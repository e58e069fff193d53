"""Exact values and gradients of a policy in the tunnel.

The policy is a table: for every view, a softmax over the actions that are shown there.
Its expected return and the gradient of that return with respect to the logits follow
from two sweeps over places and times (Sutton and Barto, section 13.2): the gradient at
a view is the sum over the visits of pi(a) * (Q(a) - V).
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcli.worlds.tunnel.rules import Spot, Tunnel

Row = NDArray[np.float64]
"""One number an action, in the order of `Tunnel.actions`."""
Table = Mapping[str, Row]
"""View -> logits. A view that is not there has equal logits."""


class Exact(NamedTuple):
    """A policy's return in one game, and where it comes from."""

    value: float
    """The expected return."""
    success: float
    """The probability to win within the time."""
    steps: float
    """The expected number of steps."""
    gradient: dict[str, Row]
    """View -> d value / d logits."""
    values: list[dict[Spot, float]]
    """The return that is still to come from each place, by the steps taken before."""
    gains: list[dict[Spot, Row]]
    """How much more each action there returns, likewise."""


def policy_at(table: Table, view: str, actions: int) -> Row:
    """The probabilities of the actions that are shown at a view."""
    logits = table.get(view)
    if logits is None:
        return np.full(actions, 1 / actions)
    weights: Row = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights


def solve(game: Tunnel, table: Table, most_steps: int) -> Exact:
    """The exact return of a policy that has `most_steps` steps."""
    levels = _reachable(game, most_steps)
    values: dict[Spot, float] = {}
    wins: dict[Spot, float] = {}
    all_values: list[dict[Spot, float]] = []
    advantages: list[dict[Spot, Row]] = []
    # Backwards in time: what is still to come from each place.
    for level in reversed(levels[:-1]):
        new_values, new_wins, gains = {}, {}, {}
        for place in level:
            actions = game.actions(place)
            chances = policy_at(table, game.view(place), len(actions))
            returns = np.zeros(len(actions))
            won = np.zeros(len(actions))
            for index, action in enumerate(actions):
                after = game.after(place, action)
                # Ends, and what lies beyond the last step, are missing: nothing is to
                # come there.
                returns[index] = game.reward(place, after) + values.get(after, 0.0)
                won[index] = game.won(after) or wins.get(after, 0.0)
            new_values[place] = float(chances @ returns)
            new_wins[place] = float(chances @ won)
            gains[place] = returns - new_values[place]
        values, wins = new_values, new_wins
        all_values.append(values)
        advantages.append(gains)
    advantages.reverse()
    all_values.reverse()
    gradient, steps = _forwards(game, table, advantages)
    start = Spot()
    return Exact(values[start], wins[start], steps, gradient, all_values, advantages)


def _reachable(game: Tunnel, most_steps: int) -> list[list[Spot]]:
    """The places where an action can be taken, after 0, 1, ... steps; then an end."""
    levels = [[Spot()]]
    for _ in range(most_steps):
        places: dict[Spot, None] = {}
        for place in levels[-1]:
            for action in game.actions(place):
                after = game.after(place, action)
                if not game.ended(after):
                    places[after] = None
        levels.append(list(places))
    return levels


def _forwards(
    game: Tunnel,
    table: Table,
    advantages: list[dict[Spot, Row]],
) -> tuple[dict[str, Row], float]:
    """Forwards in time: how often each place is visited, times what it is worth.

    Returns the gradient and the expected number of steps.
    """
    gradient: defaultdict[str, Row | float] = defaultdict(float)
    visits = {Spot(): 1.0}
    steps = 0.0
    for gains in advantages:
        following: defaultdict[Spot, float] = defaultdict(float)
        for place, chance in visits.items():
            view = game.view(place)
            actions = game.actions(place)
            chances = policy_at(table, view, len(actions))
            gradient[view] = gradient[view] + chance * chances * gains[place]
            steps += chance
            for action, share in zip(actions, chances, strict=True):
                after = game.after(place, action)
                if not game.ended(after):
                    following[after] += chance * share
        visits = following
    rows = {view: np.asarray(row) for view, row in gradient.items()}
    return rows, steps
