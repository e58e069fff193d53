"""All dialects by name.

An installed package adds dialects under the entry-point group `agentcli.dialects`:
classes that are constructed from PromptSettings and a World.
"""

from typing import Protocol

from msgspec.structs import replace

from agentcli.environments.protocol import Naming, World, world_as
from agentcli.errors import UsageError
from agentcli.prompts.protocol import Answer, Dialect, Message, Moment
from agentcli.records.settings import PromptSettings
from agentcli.registry import Registry

DIALECTS = {
    "full": "agentcli.prompts.full:Full",
    "shared": "agentcli.prompts.full:Shared",
    "rlvmr": "agentcli.prompts.full:Rlvmr",
    "react": "agentcli.prompts.full:React",
    "tools": "agentcli.prompts.tools:Tools",
    "search": "agentcli.prompts.search:Search",
    "chat": "agentcli.prompts.chat:Chat",
    "chat-compact": "agentcli.prompts.chat:ChatCompact",
    "compact": "agentcli.prompts.compact:Compact",
    "parallel-full": "agentcli.prompts.parallel:ParallelFull",
    "parallel-compact": "agentcli.prompts.parallel:ParallelCompact",
}
PARALLEL = "parallel-"
"""The names of dialects for several copies of the environment begin with this."""

GROWING = ("chat", "chat-compact")
"""Dialects whose messages continue a conversation, of one environment."""

REGISTRY = Registry("agentcli.dialects", DIALECTS, key="prompt.style", kind="style")


def dialect_names() -> list[str]:
    """Names of the built-in and installed dialects, sorted."""
    return REGISTRY.names()


class DialectClass(Protocol):
    """The class of a dialect, which is instantiated for a world."""

    fixed: str | None

    def __call__(self, settings: PromptSettings, world: World) -> Dialect:
        """Raises UsageError if the world does not support the dialect."""


def dialect_name(style: str, numbered: bool = False) -> str:
    """The dialect that `prompt.style` names.

    With `numbered` it is the counterpart for several numbered copies.
    """
    if numbered and not style.startswith(PARALLEL):
        return PARALLEL + style
    return style


def dialect_class(style: str, numbered: bool = False) -> DialectClass:
    """The class of `dialect_name`.

    Raises UsageError with the nearest name for a style that does not exist, and for
    several copies in one conversation.
    """
    if numbered and style in GROWING:
        raise UsageError(
            f"prompt.style: {style} holds a conversation with one environment, and "
            "this method acts in several; choose full or compact, or another method"
        )
    dialect: DialectClass = REGISTRY.load(dialect_name(style, numbered))
    return dialect


def make_dialect(
    settings: PromptSettings,
    world: World,
    numbered: bool = False,
) -> Dialect:
    """The dialect of `settings` for `world`.

    Raises UsageError as `dialect_class` and the dialect do.
    """
    style = settings.style or world.card.dialect
    if settings.tools == "native" and style != "chat":
        raise UsageError(
            f"prompt.tools: native needs prompt.style chat, not {style}; add "
            "--set prompt.style=chat, or leave prompt.tools out"
        )
    dialect = dialect_class(style, numbered)(settings, world)
    # After the style was found: a misspelt one is the fault to report.
    if style not in GROWING:
        _refuse_conversation(settings, style)
    if settings.names == "own":
        return dialect
    if style.removeprefix(PARALLEL) != "compact":
        raise UsageError(
            f"prompt.names: {settings.names} needs prompt.style compact, not {style}; "
            "add --set prompt.style=compact, or leave prompt.names out"
        )
    return Typed(dialect, world_as(world, Naming, "prompt.names", settings.names))


def _refuse_conversation(settings: PromptSettings, style: str) -> None:
    """Raises UsageError for a setting that only a growing conversation reads."""
    for name in ("keep_thinking", "restart"):
        value = getattr(settings, name)
        if value is not None:
            raise UsageError(
                # As YAML writes a truth value.
                f"prompt.{name}: {str(value).lower()} needs prompt.style chat or "
                f"chat-compact, not {style}; add --set prompt.style=chat, or leave "
                f"prompt.{name} out"
            )


class Typed:
    """The dialect `inner` with placeholders by type in the place of a world's names.

    So a room never seen has no unknown words. What is asked is translated, and an
    answer is translated back before anything acts. Trees keep the own names in actions
    and observations; prompt and response are what the policy read and said. All copies play one task, so that a thing has one placeholder in all of them.
    """

    def __init__(self, inner: Dialect, naming: Naming) -> None:
        self.fixed = inner.fixed
        self._inner = inner
        self._naming = naming

    def ask(self, moment: Moment) -> Message:
        """The message of `inner` with placeholders."""
        parts = []
        for part in self._inner.ask(moment).parts:
            if isinstance(part, str):
                part = self._naming.typed(part, moment.copies[0])
            parts.append(part)
        return Message(tuple(parts))

    def read(self, response: str, moment: Moment) -> Answer:
        """The answer with own names in its actions; its reasoning stays as it was said.

        An action keeps a placeholder that stands for nothing, and an own name.
        """
        answer = self._inner.read(response, moment)
        actions = {}
        for number, action in answer.actions.items():
            copy = moment.copies[number - 1]
            actions[number] = self._naming.own(action, copy)
        return replace(answer, actions=actions)

    def write(self, answer: Answer, moment: Moment) -> str:
        """The response with placeholders in reasoning and actions."""
        response = self._inner.write(answer, moment)
        return self._naming.typed(response, moment.copies[0])
