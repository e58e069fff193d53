"""LoRA adapters through PEFT: every linear layer but the language-model head, which
both trainers use directly.
"""

from typing import Any

from agentcli.errors import UsageError
from agentcli.records.settings import LoraSettings


def add_adapter(model: Any, settings: LoraSettings) -> Any:
    """`model` with a new, untrained adapter: same outputs, only the adapter requires a
    gradient.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    _sort_targets(config)
    return adapted


def continue_adapter(model: Any, directory: str, settings: LoraSettings) -> Any:
    """A loaded PEFT model whose adapter requires a gradient. Raises UsageError when
    `settings` ask for another shape.
    """
    found = model.peft_config["default"]
    if (settings.rank, settings.alpha) != (found.r, found.lora_alpha):
        raise UsageError(
            f"{directory}: is an adapter of rank {found.r} and alpha "
            f"{found.lora_alpha}, not {settings.rank} and {settings.alpha}; set "
            f"lora.rank={found.r} and lora.alpha={found.lora_alpha}, or start from a "
            "full checkpoint"
        )
    model.set_adapter("default", inference_mode=False)
    _sort_targets(found)
    return model


def _sort_targets(config: Any) -> None:
    """PEFT keeps a set, which it would save in another order each time."""
    config.target_modules = sorted(config.target_modules)
