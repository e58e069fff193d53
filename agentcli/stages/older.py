"""Settings that older versions recorded under another name."""

from agentcli.stages.merging import overlay
from agentcli.stages.yaml_files import Values

MOVED = {"train.dpo": "train.options, with train.objective dpo"}
"""Where a setting stands now that a user may still write at its old place."""


def renamed(settings: Values) -> Values:
    """Recorded settings as this version names them.

    `train.dpo` was recorded for every objective, and read by dpo alone.
    """
    train = settings.get("train")
    if not isinstance(train, dict) or "dpo" not in train:
        return settings
    renamed: Values = {name: train[name] for name in train if name != "dpo"}
    if train.get("objective") == "dpo":
        renamed = overlay({"options": train["dpo"]}, renamed)
    return {**settings, "train": renamed}
