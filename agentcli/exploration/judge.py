"""A judge is a model that scores the actions an agent could take (Rare-tool section 4.1).

It sees the question, the steps so far, the thought and the query. It answers with one
JSON object: a score from 0 to 10 for every tool and for chain of thought, and whether
the step is reasonable. Any other reply is refused and the judge is asked again. If no
reply can be read, the step is errored; it does not get a score of zero.

Replies can be kept on disk (rollout.judge.cache), so that no question is paid for twice.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentcli.environments.protocol import Context, Verdict
from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.protocol import Message
from agentcli.prompts.tagged import unfenced
from agentcli.records.calls import COT
from agentcli.records.faults import UNREADABLE, fault_in, one_line, shown
from agentcli.records.files import read_json, write_atomic
from agentcli.records.regular import is_there
from agentcli.records.section import Count
from agentcli.records.settings import AdvisorSettings, PolicySettings

LEAST, MOST = 0.0, 10.0
"""The range of a score."""

MESSAGE = """\
You judge one step of an agent that answers a question with tools.

{instruction}

Steps so far:
{past}

The agent thinks: {thought}
It wants to ask: {query}

Actions it could take now:
{actions}

Score each action from 0 (useless here) to 10 (best here). Say whether the step is \
reasonable, given all that is known. Answer with one JSON object and nothing else:
{{"scores": {{{example}}}, "process_ok": true or false}}{problem}

Query: {quoted}"""


class JudgeSettings(AdvisorSettings, kw_only=True):
    """Settings of the model that judges."""

    attempts: Count = 3
    """How often the judge is asked before an unreadable reply is an error."""
    cache: str | None = None
    """Folder that caches the judge's replies, each under a hash of the request. None:
    the judge is asked every time.
    """


class _VerdictForm(msgspec.Struct, forbid_unknown_fields=True):
    """The only accepted form of a judge's reply."""

    scores: dict[str, Annotated[float, Meta(ge=LEAST, le=MOST)]]
    process_ok: bool


async def ask_judge(
    actor: Actor,
    node: Node,
    index: int,
    settings: JudgeSettings,
    tools: Mapping[str, str],
    thought: str,
    query: str,
) -> Verdict | str:
    """The verdict on a response at `node`, or why there is none.

    `index` is the response's number at the node.
    """
    problem = ""
    names = [*tools, COT]
    context = node.moment.copies[0]
    for attempt in range(settings.attempts):
        # No two questions at a node share a number, since it makes the seed.
        number = index * settings.attempts + attempt
        message = judge_message(context, tools, thought, query, problem)
        reply = await actor.ask("judge", node, message, number, of_response=True)
        if isinstance(reply, str):
            return reply
        verdict = read_verdict(reply.text, names)
        if isinstance(verdict, Verdict):
            return verdict
        problem = verdict
    return f"rollout.judge: {problem} ({settings.attempts} attempts)"


def judge_message(
    context: Context,
    tools: Mapping[str, str],
    thought: str,
    query: str,
    problem: str = "",
) -> Message:
    """The message that asks for a verdict; `problem` is what was wrong last time.

    The last line has the query as JSON, so that a query cannot imitate other parts of
    the message.
    """
    past = []
    for number, action in enumerate(context.actions, 1):
        past.append(f"{number}. {one_line(action) or '(unreadable)'}")
        past.append(f"   Result: {context.observations[number]}")
    actions = [f"- {name}: {purpose}" for name, purpose in tools.items()]
    actions.append(f"- {COT}: thinks on, without a tool")
    example = ", ".join(f'"{name}": 0' for name in [*tools, COT])
    text = MESSAGE.format(
        instruction=context.instruction,
        past="\n".join(past) or "none",
        thought=thought,
        query=one_line(query),
        problem=f"\n\nYour last reply was refused: {problem}" if problem else "",
        actions="\n".join(actions),
        example=example,
        quoted=json.dumps(query),
    )
    return Message((text,))


def read_verdict(text: str, names: Iterable[str]) -> Verdict | str:
    """The verdict that a reply holds, or what is wrong with it.

    Exactly `names` must be scored. A code fence around the JSON is removed.
    """
    data = unfenced(text).encode()
    try:
        reply = msgspec.json.decode(data, type=_VerdictForm)
    except UNREADABLE as error:
        # Of nothing, msgspec says only that it was truncated.
        return fault_in(error, data) if data else "an empty reply"
    wanted = list(names)
    missing = [name for name in wanted if name not in reply.scores]
    if missing:
        return f"no score of {', '.join(missing)}"
    unknown = [name for name in reply.scores if name not in wanted]
    if unknown:
        return f"a score of {shown(unknown[0])}, which is no action"
    # In the tools' order, not the judge's: ties go to the first (rare-tool's select).
    scores = {name: reply.scores[name] for name in wanted}
    return Verdict(scores=scores, process_ok=reply.process_ok)


def judges(tools: Iterable[str]) -> Callable[[Reply], bool]:
    """A check whether a reply is a verdict on these tools and chain of thought."""
    names = [*tools, COT]

    def is_verdict(reply: Reply) -> bool:
        return isinstance(read_verdict(reply.text, names), Verdict)

    return is_verdict


class KeptReplies:
    """The policy `inner` with a folder in which its `usable` replies are stored."""

    def __init__(
        self,
        inner: Policy,
        settings: PolicySettings,
        folder: Path,
        usable: Callable[[Reply], bool],
    ) -> None:
        self.seconds = 0.0
        self._usable = usable
        self._inner = inner
        self._folder = folder
        model: list[Any] = [
            settings.kind,
            settings.model,
            settings.adapter,
            settings.endpoint.base_url,
            settings.endpoint.logprobs,
        ]
        # Left out where there are none: replies kept before the setting existed
        # keep their names.
        if settings.chat_template_kwargs:
            model.append(settings.chat_template_kwargs)
        self._model = msgspec.json.encode(model)

    async def respond(self, request: Request) -> Reply:
        """The stored reply, else a new one.

        Raises what the policy raises, DataError for a stored reply that cannot be read,
        and WriteError.
        """
        path = self._path(request)
        if is_there(path):
            return read_json(path, Reply)
        reply = await self._inner.respond(request)
        if self._usable(reply):
            write_atomic(path, msgspec.json.encode(reply))
        # A reply from the folder costs no time of the policy.
        self.seconds = self._inner.seconds
        return reply

    async def close(self) -> None:
        await self._inner.close()

    def _path(self, request: Request) -> Path:
        """The file for the reply to a request."""
        seed = request.seed if request.temperature else None
        sampling = [request.temperature, request.max_tokens, seed]
        digest = hashlib.sha256(self._model)
        digest.update(msgspec.json.encode([request.message.text, sampling]))
        for picture in request.message.pictures:
            digest.update(hashlib.sha256(picture.png).digest())
        name = digest.hexdigest()
        return self._folder / name[:2] / f"{name}.json"
