"""The settings of methods that start several trajectories and then fork them."""

from agentcli.errors import UsageError
from agentcli.records.section import Count
from agentcli.records.settings import RolloutSettings


class RootedRollout(RolloutSettings, kw_only=True):
    """Settings of methods that fork their first trajectories."""

    roots: Count = 4
    """The number of trajectories that start from the initial state before any fork: M
    in spark, N0 in carl.
    """

    def check(self) -> None:
        """Raises UsageError when the first trajectories exceed the leaf budget."""
        if self.roots > self.leaves:
            raise UsageError(
                f"rollout.roots is {self.roots}, more than rollout.leaves "
                f"({self.leaves}); lower --roots"
            )
