"""Settings that older versions recorded under other names."""

from typing import Any


def renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings under the names of this version.

    Older versions recorded `train.dpo` for every objective, although only dpo read it.
    """
    train = settings.get("train")
    if not isinstance(train, dict) or "dpo" not in train:
        return settings
    kept = {name: value for name, value in train.items() if name != "dpo"}
    if train.get("objective") == "dpo" and not train.get("options"):
        kept["options"] = train["dpo"]
    return {**settings, "train": kept}
