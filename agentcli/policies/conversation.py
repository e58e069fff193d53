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

REMEMBERED = 4096
"""Messages whose tokens are cached: siblings and revisited states repeat them."""
ROLE, QUESTION, ANSWER = "Be brief.", "And now?", "It is done."
"""A conversation with which a template is tried."""
THOUGHTFUL = "<think> It is near. </think><action> go on </action>"
"""An answer with a thought, as the dialects write it."""

Chat = list[dict[str, str]]


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
        self._added = lru_cache(REMEMBERED)(self._added_ids)
        self._checked = cache(self._check)

    def ids(self, message: Message, turns: Sequence[Exchange]) -> list[int]:
        """Token ids up to the start of the model's turn.

        Raises UsageError for a template that does not grow, unless the message says
        that this is known.
        """
        if message.continues == "rendered":
            chat = self._chat([*turns, Exchange(message, "")])[:-1]
            return self._ids(chat, turns[0].message.tools)
        # A template that does not grow is refused before anything is spent.
        grows = message.continues or message.begins
        opening = turns[0].message if turns else message
        if grows in ("exact", "sampled"):
            self._checked(grows == "exact", opening.tools)
        ids = list(self._first(opening))
        if not turns:
            return ids
        messages = [turn.message for turn in turns[1:]]
        for turn, following in zip(turns, [*messages, message], strict=True):
            ids += self.answer(turn)
            ids += self._added(following.text, following.role)
        return ids

    def answer(self, turn: Exchange) -> list[int]:
        """Token ids of an earlier answer, through the end of the model's turn."""
        ids = list(turn.token_ids) or self._spoken_ids(turn.response)
        if ids and ids[-1] in self._ends:
            return ids
        # No model ended it, or it was cut off at its limit.
        return ids + self._closing

    def _first_ids(self, opening: Message) -> list[int]:
        return self._ids(self._opening(opening), opening.tools)

    def _added_ids(self, text: str, role: str) -> list[int]:
        """What the template adds between the end of an answer and the next one."""
        return self._between(text, role)[len(self._closing) :]

    @cached_property
    def _closing(self) -> list[int]:
        """What ends an answer, through the end of the model's turn."""
        return until_end(self._between(QUESTION), self._ends)

    def _between(self, text: str, role: str = "user") -> list[int]:
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

    def _check(self, exact: bool, tools: str) -> None:
        """Raises UsageError if the template does not add what `ids` adds.

        With `exact`, it must also leave a thoughtful answer as it is. With `tools`, it
        must show them.
        """
        from jinja2 import TemplateError

        opening = Message((QUESTION,), system=ROLE)
        role = "tool" if tools else "user"
        start = self._text(self._opening(opening), tools)
        if tools and json.loads(tools)[0]["function"]["name"] not in start:
            raise UsageError(
                f"prompt.tools native: the chat template of {self._name} shows no "
                "tools; choose prompt.tools=text"
            )
        answer = {"role": "assistant", "content": THOUGHTFUL}
        heard = self._heard(QUESTION, role)
        chat = [*self._opening(opening), answer, heard, answer, heard]
        try:
            added = self._addition(QUESTION, role)
            whole = self._text(chat, tools)
        except TemplateError:
            added = whole = ""
        if QUESTION not in added:
            raise UsageError(
                f"prompt.style chat: the chat template of {self._name} has no place for "
                f"a message of the role {role} after an answer; choose "
                + ("prompt.tools=text" if tools else "another style")
            )
        grown = start + THOUGHTFUL + added + THOUGHTFUL + added
        grows = whole == grown if exact else whole.endswith(added)
        ids = self._between(QUESTION, role)
        if grows and self._ids(chat, tools)[-len(ids) :] == ids != self._closing:
            return
        remedy = "choose another prompt.style"
        if exact:
            remedy = (
                "set prompt.keep_thinking=true to keep what was sampled, or =false to "
                "let the template write every prompt anew"
            )
        raise UsageError(
            f"prompt.style chat: the chat template of {self._name} rewrites earlier "
            f"turns, so its conversations do not grow; {remedy}"
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
        from jinja2 import TemplateError

        role = {"role": "system", "content": ROLE}
        try:
            return ROLE in self._text([role, self._heard(QUESTION)])
        except TemplateError:
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
        return self._tokenizer.apply_chat_template(
            chat,
            tools=json.loads(tools) if tools else None,
            add_generation_prompt=True,
            **options,
            **template_kwargs(self._tokenizer),
        )
