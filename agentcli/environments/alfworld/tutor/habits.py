"""The faults that the searching expert has on purpose.

It is imitated: they are the headroom that reinforcement learning has to close.
"""

import msgspec

from agentcli.records.section import Share


class AlfworldHabits(msgspec.Struct, kw_only=True, frozen=True):
    """Shares of episodes, or of places. Each is also a field of `demos`."""

    forget: Share = 0.0
    """Share of episodes in which the tool step (clean, heat, cool) is left out, or the
    second object.
    """
    overlook: Share = 0.0
    """Share of closed receptacles that are passed by without opening."""
    wander: Share = 1.0
    """Share of episodes that visit places in an order of their own; the others follow
    the order of the commands.
    """
