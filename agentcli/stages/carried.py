"""The models that a loop passes from iteration to iteration: policy and critic."""

from typing import NamedTuple

from agentcli.credit.registry import known
from agentcli.records.settings import Settings
from agentcli.stages.plan import with_changes
from agentcli.stages.train import critic_of


class StartingModels(NamedTuple):
    """The models that an iteration starts from."""

    model: str
    critic: str | None
    """None if the objective has no critic."""


def first_critic(settings: Settings, model: str) -> str | None:
    """The critic of the first iteration; None for an objective without one.

    It is rollout.critic, or the critic that a training of `model` starts from.
    """
    critic = critic_of(settings, model)
    if critic is not None and settings.rollout.critic is not None:
        return settings.rollout.critic
    return critic


def with_critic(settings: Settings, critic: str | None, iteration: int) -> Settings:
    """Settings of an iteration whose training continues this critic.

    Its rollouts use the critic too, if the credit needs its values.
    """
    settings = with_changes(settings, rollout={"iteration": iteration})
    if critic is None:
        return settings
    options = {**settings.train.options, "critic": critic}
    settings = with_changes(settings, train={"options": options})
    if not known(settings.credit["method"]).needs_values:
        return settings
    return with_changes(settings, rollout={"critic": critic})
