"""The settings of methods that begin with several trajectories and fork these."""

from agentcli.errors import UsageError
from agentcli.records.section import Count
from agentcli.records.settings import RolloutSettings


class RootedRollout(RolloutSettings, kw_only=True):
    """Settings of the methods that fork their first trajectories."""

    roots: Count = 4
    """Trajectories that start from the initial state before any fork: M of spark, N0 of
    carl.
    """

    def check(self) -> None:
        """Raises UsageError when the first trajectories exceed the leaf budget."""
        if self.roots > self.leaves:
            raise UsageError(
                f"rollout.roots is {self.roots}, more than rollout.leaves "
                f"({self.leaves}); lower --roots"
            )
