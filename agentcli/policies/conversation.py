"""The tokens of a conversation that grows.

The prompt of a step is the prompt before it, the response as it was sampled, and what
the chat template writes from there to the start of the model's next turn. So nothing
that was sampled is tokenised again, and every prompt begins with the one before.

Some templates rewrite what was said: they leave the thoughts out of earlier answers
(Qwen3, DeepSeek-R1), and their conversations do not grow. What is added here is
compared with the template's own rendering, and such a template is refused, unless
prompt.keep_thinking says what is wanted.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

from agentcli.errors import UsageError
from agentcli.policies.chat import plain, template_kwargs
from agentcli.prompts.protocol import Exchange, Message
from agentcli.prompts.tags import one_line
from agentcli.records.types import Continues

REMEMBERED = 4096
"""Messages whose tokens are cached: siblings and revisited states repeat them."""
ROLE, QUESTION, ANSWER = "Be brief.", "And now?", "It is done."
"""A conversation with which a template is tried."""
DONE = "<action> go on </action>"
THOUGHTFUL = f"<think> It is near. </think>{DONE}"
"""An answer with a thought, as the dialects write it."""

REWRITES = "rewrites earlier turns, so its conversations do not grow"

Chat = list[dict[str, str]]


class UnrenderedError(UsageError):
    """A chat template that failed at a conversation."""


def until_end(tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
    """A response up to and including its end-of-turn token."""
    for index, token in enumerate(tokens):
        if token in ends:
            return list(tokens[: index + 1])
    return list(tokens)


class Conversations:
    """Gives the token ids of conversations.

    `ends` are the model's end-of-turn tokens; `spoken_ids` gives the tokens of an
    answer's text, without what ends it.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: Sequence[int],
        spoken_ids: Callable[[str], list[int]],
    ) -> None:
        self._tokenizer = tokenizer
        self._ends = ends
        self._spoken_ids = spoken_ids
        self._first = lru_cache(REMEMBERED)(self._first_ids)
        self._between = lru_cache(REMEMBERED)(self._between_ids)
        self._checked = cache(self._check)

    def ids(self, message: Message, turns: Sequence[Exchange]) -> list[int]:
        """Token ids up to the start of the model's turn.

        Raises UsageError for a template that does not grow, unless the message says
        that this is known.
        """
        opening = turns[0].message if turns else message
        # A template that does not fit is refused before anything is spent.
        how = message.continues or message.begins
        if how is not None:
            self._checked(how, opening.tools)
        if message.continues == "rendered":
            chat = self._chat([*turns, Exchange(message, "")])[:-1]
            return self._ids(chat, opening.tools)
        ids = list(self._first(opening))
        messages = [*(turn.message for turn in turns), message][1:]
        for turn, following in zip(turns, messages, strict=True):
            spoken = list(turn.token_ids) or self._spoken_ids(turn.response)
            ids += spoken
            ids += self._after(spoken, self._between(following.text, following.role))
        return ids

    def _first_ids(self, opening: Message) -> list[int]:
        return self._ids(self._opening(opening), opening.tools)

    def _after(self, spoken: Sequence[int], between: list[int]) -> list[int]:
        """What follows an answer, whose own end is not written again.

        An answer without the template's end gets it: no model ended it, it was cut off
        at its limit, or it ended with another token, as if a user spoke next where a
        tool does.
        """
        closing = until_end(between, self._ends)
        if spoken and spoken[-1] == closing[-1]:
            return between[len(closing) :]
        return between

    def _between_ids(self, text: str, role: str = "user") -> list[int]:
        """The token ids of `_addition`."""
        addition = self._addition(text, role)
        ids: list[int] = self._tokenizer(addition, add_special_tokens=False).input_ids
        return ids

    def _addition(self, text: str, role: str = "user") -> str:
        """What the template writes between an answer and the next one."""
        chat = [
            self._heard(QUESTION),
            {"role": "assistant", "content": ANSWER},
            self._heard(text, role),
        ]
        return self._text(chat).partition(ANSWER)[2]

    def _check(self, how: Continues, tools: str) -> None:
        """Raises UsageError if the template does not write what `ids` gives.

        exact: it must leave a thoughtful answer as it is. sampled: what it writes after
        one must be what is added here. rendered: it must show every message. With
        `tools`, it must show them, and have a place for what a call returned as well as
        for a user's message.
        """
        opening = self._opening(Message((QUESTION,), system=ROLE))
        start = self._text(opening, tools)
        if tools and json.loads(tools)[0]["function"]["name"] not in start:
            raise UsageError(
                f"prompt.tools native: the chat template of {self._name} shows no "
                "tools; choose prompt.tools=text"
            )
        roles = ("tool", "user") if tools else ("user",)
        for role in roles:
            self._check_place(role)
        for order in (roles * 2, roles[::-1] * 2):
            added = [self._addition(QUESTION, role) for role in order]
            chat = list(opening)
            for role in order:
                chat += [{"role": "assistant", "content": THOUGHTFUL}]
                chat += [self._heard(QUESTION, role)]
            whole = self._text(chat, tools)
            if how == "rendered":
                # Thoughts may be left out, what was done may not.
                heard = whole.count(QUESTION) == 1 + len(order) and ROLE in whole
                if not heard or whole.count(DONE) != len(order):
                    raise self._refused("leaves messages out", "another style")
                continue
            grown = start + "".join(THOUGHTFUL + text for text in added)
            grows = whole == grown if how == "exact" else whole.endswith(added[-1])
            ids = self._between(QUESTION, order[-1])
            ends = ids != until_end(ids, self._ends)
            if not (grows and ends and self._ids(chat, tools)[-len(ids) :] == ids):
                raise self._not_growing(how)

    def _check_place(self, role: str) -> None:
        """Raises UsageError if the template has no place for a role after an answer."""
        why = ""
        try:
            added = self._addition(QUESTION, role)
        except UnrenderedError as error:
            added, why = "", f" ({one_line(str(error.__cause__))})"
        if QUESTION not in added:
            raise self._refused(
                f"has no place for a message of the role {role} after an answer{why}",
                "prompt.tools=text" if role == "tool" else "another style",
            )

    def _not_growing(self, how: Continues) -> UsageError:
        if how != "exact":
            return self._refused(REWRITES, "another prompt.style")
        return UsageError(
            f"prompt.style chat: the chat template of {self._name} {REWRITES}; set "
            "prompt.keep_thinking=true to keep what was sampled, or =false to let the "
            "template write every prompt anew"
        )

    def _refused(self, why: str, instead: str) -> UsageError:
        return UsageError(
            f"prompt.style chat: the chat template of {self._name} {why}; choose "
            f"{instead}"
        )

    @property
    def _name(self) -> str:
        name: str = self._tokenizer.name_or_path
        return name

    def _chat(self, turns: Sequence[Exchange]) -> Chat:
        """A whole conversation, each turn with its answer."""
        chat = self._opening(turns[0].message)
        for number, turn in enumerate(turns):
            if number:
                chat.append(self._heard(turn.message.text, turn.message.role))
            answer = plain(self._tokenizer, turn.response)
            chat.append({"role": "assistant", "content": answer})
        return chat

    def _opening(self, message: Message) -> Chat:
        """The messages before the first answer."""
        if not message.system:
            return [self._heard(message.text)]
        if not self._takes_system:
            return [self._heard(f"{message.system}\n\n{message.text}")]
        role = {"role": "system", "content": plain(self._tokenizer, message.system)}
        return [role, self._heard(message.text)]

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template has system messages; Gemma's has none."""
        role = {"role": "system", "content": ROLE}
        try:
            return ROLE in self._text([role, self._heard(QUESTION)])
        except UnrenderedError:
            return False

    def _heard(self, text: str, role: str = "user") -> dict[str, str]:
        return {"role": role, "content": plain(self._tokenizer, text)}

    def _text(self, chat: Chat, tools: str = "") -> str:
        """A conversation as text, up to the start of the model's turn."""
        text: str = self._applied(chat, tools, tokenize=False)
        return text

    def _ids(self, chat: Chat, tools: str = "") -> list[int]:
        ids: list[int] = self._applied(chat, tools, tokenize=True, return_dict=False)
        return ids

    def _applied(self, chat: Chat, tools: str, **options: bool) -> Any:
        """Raises UnrenderedError for whatever the template raises: it is a program."""
        schemas = json.loads(tools) if tools else None
        try:
            return self._tokenizer.apply_chat_template(
                chat,
                tools=schemas,
                add_generation_prompt=True,
                **options,
                **template_kwargs(self._tokenizer),
            )
        except Exception as error:
            raise UnrenderedError(
                f"prompt.style chat: the chat template of {self._name} fails: "
                f"{type(error).__name__}: {error}; choose another style, or mend it"
            ) from error
