"""The faults that the searching expert has on purpose: headroom for learning."""

import msgspec

from agentcli.records.section import Share


class WebshopHabits(msgspec.Struct, kw_only=True, frozen=True):
    """Shares of episodes. Each is also a field of `demos`."""

    forget: Share = 0.0
    """Share of episodes in which the last wanted option is not chosen."""
    overlook: Share = 0.0
    """Share of episodes in which the first hit is bought, whatever it costs or lacks."""
    wander: Share = 1.0
    """Share of episodes that look at hits in an order of their own; the others begin
    with the first of those that fit.
    """
