"""Settings that older versions recorded under another name."""

from typing import Any

MOVED = {"train.dpo": "train.options, with train.objective dpo"}
"""Where a setting stands now that a user may still write at its old place."""


def renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings as this version names them.

    `train.dpo` was recorded for every objective, and read by dpo alone.
    """
    train = settings.get("train")
    if not isinstance(train, dict) or "dpo" not in train:
        return settings
    kept = {name: value for name, value in train.items() if name != "dpo"}
    if train.get("objective") == "dpo" and not train.get("options"):
        kept["options"] = train["dpo"]
    return {**settings, "train": kept}
