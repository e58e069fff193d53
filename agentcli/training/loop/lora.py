"""LoRA adapters (PEFT) on every linear layer except the language-model head.

The trainers use the head directly.
"""

from typing import Any

from agentcli.records.training_settings import LoraSettings


def add_adapter(
    model: Any, settings: LoraSettings, task: str = "CAUSAL_LM", **more: Any
) -> Any:
    """The model with a new adapter, whose weights alone require a gradient.

    The new adapter does not change the outputs. `more` goes to PEFT's LoraConfig.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        task_type=task,
        **more,
    )
    adapted = get_peft_model(model, config)
    _sort_targets(config)
    return adapted


def continue_adapter(model: Any) -> Any:
    """A loaded PEFT model whose adapter, of whatever shape, requires a gradient."""
    model.set_adapter("default", inference_mode=False)
    _sort_targets(model.peft_config["default"])
    return model


def _sort_targets(config: Any) -> None:
    """Sorts the names of the layers, since PEFT would save its set in any order."""
    config.target_modules = sorted(config.target_modules)
