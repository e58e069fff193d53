"""Settings for any exploration method."""

from typing import Any

from agentcli.exploration.settings import methods_with, rollout_class
from agentcli.records.settings import RolloutSettings


def fitting(method: str = "chain", **values: Any) -> RolloutSettings:
    """The settings of `method` from `values`; those that only other methods have are left out."""
    names = rollout_class(method).__struct_fields__
    for name in values:
        assert name in names or methods_with(name), f"no method has {name}"
    return rollout_class(method)(method=method, **{name: value for name, value in values.items() if name in names})
