"""The tokens of a chat model's prompts and responses, for any inference backend."""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from agentcli.errors import SHORTEN, PromptTooLongError, UsageError
from agentcli.policies.chat import (
    mentions,
    plain,
    prompt_ids,
    rendered,
    template_kwargs,
)
from agentcli.policies.protocol import UNSEEN, Reply, Request
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.faults import one_line
from agentcli.records.types import Continues, StopReason

if TYPE_CHECKING:
    from agentcli.policies.sight import Eyesight

PROMPTS_REMEMBERED = 4096
"""Prompts whose tokens are cached: siblings and revisited states repeat a prompt."""
THOUGHT = "<think>"
"""The tag that the templates of reasoning models open in the prompt itself."""
EXAMPLE = "done."
"""An answer in whose place a template is asked what follows an answer."""
ROLE, QUESTION, ANSWER = "Be brief.", "And now?", "It is done."
"""A conversation with which a template is tried."""
DONE = "<action> go on </action>"
THOUGHTFUL = f"<think> It is near. </think>{DONE}"
"""An answer with a thought, as the dialects write it."""

LOWER = "lower policy.max_tokens (the model is made for no more)"
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
    """Gives the token ids of conversations that grow.

    The prompt of a step is the prompt before it, the response as it was sampled, and
    what the chat template writes from there to the start of the model's next turn. So
    nothing that was sampled is tokenised again, and every prompt begins with the one
    before.

    Some templates rewrite what was said: they leave the thoughts out of earlier answers
    (Qwen3, DeepSeek-R1), and their conversations do not grow. What is added here is
    compared with the template's own rendering, and such a template is refused, unless
    prompt.keep_thinking says what is wanted.

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
        self._first = lru_cache(PROMPTS_REMEMBERED)(self._first_ids)
        self._between = lru_cache(PROMPTS_REMEMBERED)(self._between_ids)
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


class Prompted(msgspec.Struct, frozen=True):
    """A request with its prompt as tokens."""

    prompt: list[int]
    seed: int
    temperature: float
    max_tokens: int
    message: Message | None = None
    """The message, for a vision model."""
    grows: bool = False
    """Whether it is part of a conversation, which may go on."""
    run_before: int = 0
    """The number of its first tokens that were run for the step before."""

    @property
    def pictures(self) -> int:
        return len(self.message.pictures) if self.message is not None else 0


class ChatTokens:
    """Turns requests into token ids, sampled ids into replies, and texts into responses.

    A template may open the reasoning in the prompt (`<think>`). The model's answer then
    lacks its opening tag, so the tag is put before the text of a reply, and left out of
    a response that is to be learned.

    `configured_ends` is the eos_token_id of a generation config; without `sight`,
    messages with pictures are refused. Raises UsageError if neither the config nor the
    tokenizer names an end-of-turn token.
    """

    def __init__(
        self,
        tokenizer: Any,
        configured_ends: Any,
        max_prompt_tokens: int,
        sight: "Eyesight | None" = None,
    ) -> None:
        self.sight = sight
        self.ends = _end_tokens(tokenizer, configured_ends)
        self._rendered = (
            partial(rendered, tokenizer) if sight is None else sight.rendered
        )
        self._plain = partial(plain, tokenizer) if sight is None else sight.plain
        opened = re.search(rf"{THOUGHT}\s*\Z", self._rendered(EXAMPLE))
        self.opened = opened[0] if opened else ""
        """The end of every prompt, if it opens the reasoning."""
        self.prompt_ids = lru_cache(PROMPTS_REMEMBERED)(partial(prompt_ids, tokenizer))
        self._conversations = Conversations(tokenizer, self.ends, self.spoken_ids)
        self._tokenizer = tokenizer
        self._max_prompt_tokens = max_prompt_tokens

    def prompted(self, request: Request) -> Prompted:
        """The request with its prompt as tokens.

        Raises PromptTooLongError if it is longer than policy.max_prompt_tokens.
        """
        message = request.message
        prompt = self.ids(message, request.continued)
        refuse_long_prompt(len(prompt), self._max_prompt_tokens)
        run_before = 0
        if message.continues in ("exact", "sampled"):
            # The last token that was sampled was not run.
            run_before = len(self._said(request)) - 1
        return Prompted(
            prompt,
            request.seed,
            request.temperature,
            request.max_tokens,
            message=None if self.sight is None else message,
            grows=message.in_chat,
            run_before=run_before,
        )

    def ids(self, message: Message, turns: Sequence[Exchange] = ()) -> list[int]:
        """Token ids of a message, after earlier turns, up to the model's turn.

        Raises UsageError for pictures that the model cannot read, and for a
        conversation that does not grow.
        """
        if self.sight is not None:
            if message.in_chat:
                raise UsageError(
                    "prompt.style chat: this model reads pictures, and its processor "
                    "holds no conversation; choose another style"
                )
            return self.sight.prompt_ids(message)
        if message.pictures:
            raise UsageError(UNSEEN)
        if message.in_chat:
            return self._conversations.ids(message, turns)
        return self.prompt_ids(message.text)

    def answer_ids(self, answer: str) -> list[int]:
        """The response with this text, up to and including its end-of-turn token.

        Raises UsageError for a chat template that does not end the assistant's turn.
        """
        return [*self.spoken_ids(answer), *self._closing]

    def spoken_ids(self, answer: str) -> list[int]:
        """The response with this text, without what ends it."""
        text = self._plain(answer)
        if self.opened:
            text = text.removeprefix(THOUGHT).lstrip()
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids

    @cached_property
    def _closing(self) -> list[int]:
        """What the template writes after an answer, through the end-of-turn token.

        Only the text after the answer is used: a template may move or add reasoning.
        """
        _, _, text = self._rendered(EXAMPLE, EXAMPLE).rpartition(EXAMPLE)
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        closing = until_end(ids, self.ends)
        if not closing or closing[-1] not in self.ends:
            raise UsageError(
                f"{self._tokenizer.name_or_path}: its chat template does not end the "
                "assistant's turn with the eos token; change chat_template.jinja or use "
                "another model"
            )
        return closing

    def mentions(self, name: str) -> bool:
        return mentions(self._tokenizer, name)

    def text(self, response: Sequence[int]) -> str:
        """The text of a response, as it is read; without the end-of-turn token."""
        bare = response[:-1] if response[-1] in self.ends else response
        text: str = self._tokenizer.decode(bare, skip_special_tokens=True)
        return self.opened + text

    def reply(
        self, item: Prompted, response: Sequence[int], logprobs: Sequence[float]
    ) -> Reply:
        """The reply to a request.

        `logprobs` are those of softmax(logits / T), or at T = 1 for a greedy response.
        """
        ended = response[-1] in self.ends
        return Reply(
            text=self.text(response),
            token_ids=tuple(response),
            logprobs=tuple(logprobs),
            temperature=item.temperature,
            logprob_temperature=item.temperature or 1.0,
            prompt_tokens=len(item.prompt),
            stop=StopReason.STOP if ended else StopReason.LENGTH,
        )

    def with_shared_tokens(
        self, reply: Reply, item: Prompted, request: Request
    ) -> Reply:
        """The reply with the number of tokens shared with the step before.

        A conversation also shares that step's response.
        """
        if not request.turns:
            return reply
        shared = item.run_before + 1
        if not item.run_before:
            shared = common_prefix(item.prompt, self._said(request))
        return msgspec.structs.replace(reply, shared_prompt_tokens=shared)

    def _said(self, request: Request) -> list[int]:
        """The prompt and the response of the step before, as they were run."""
        *earlier, last = request.turns
        message = last.message
        if self.sight is not None:
            # Texts come before pictures, and a picture hardly ever occurs twice.
            message = Message((message.text,))
        return self.ids(message, earlier) + list(last.token_ids)


def refuse_long_prompt(tokens: int, limit: int) -> None:
    """Raises PromptTooLongError above `limit`, policy.max_prompt_tokens."""
    if tokens > limit:
        raise PromptTooLongError(
            f"the prompt has {tokens} tokens, policy.max_prompt_tokens is {limit}; "
            f"raise it, or {SHORTEN}"
        )


def refuse_crowded(item: Prompted, longest: int, remedy: str = LOWER) -> None:
    """Raises PromptTooLongError if `longest` tokens leave no room for the response."""
    room = longest - item.max_tokens
    if len(item.prompt) > room:
        raise PromptTooLongError(
            f"the prompt has {len(item.prompt)} tokens, and the model room for {room} "
            f"beside policy.max_tokens; {remedy}, or {SHORTEN}"
        )


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _end_tokens(tokenizer: Any, configured: Any) -> list[int]:
    """End-of-turn ids from the tokenizer, followed by the generation config's."""
    if not isinstance(configured, list):
        configured = [configured]
    # Some instruct models end a turn with another token than a document, and
    # only one of the two files says so.
    tokens = dict.fromkeys([tokenizer.eos_token_id, *configured])
    ends = [token for token in tokens if token is not None]
    if not ends:
        raise UsageError(
            "policy.model: neither generation_config.json nor the tokenizer names an "
            "eos token; set one there"
        )
    return ends
