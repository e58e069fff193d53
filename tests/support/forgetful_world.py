"""The toy world whose engine restores what is seen and forgets where it is: the fault that only a fork shows."""

from typing import Any

from agentcli.environments.protocol import Observation
from toy_world import ToyEngine, ToyWorld


class ForgetfulWorld(ToyWorld):
    """Use it as `EnvironmentSettings(name="forgetful_world:ForgetfulWorld", ...)`."""

    def engine(self) -> "ForgetfulEngine":
        return ForgetfulEngine(self)


class ForgetfulEngine(ToyEngine):
    """Its restored state looks right and goes on from another place."""

    def restore(self, snapshot: Any) -> Observation:
        before = self.snapshot()
        observation = super().restore(snapshot)
        super().restore(before)
        return observation
