"""A judge without a model: the engine runs every tool and scores the results.

It answers the question of `rollout --method rare-tool` as a judge model would
(Rare-tool section 4.1): JSON with a score for each tool and for `cot`, and with
`process_ok`.
"""

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import PolicyError
from agentcli.policies.model_free import ModelFree
from agentcli.policies.protocol import Reply, Request

QUERY = "Query: "
"""The beginning of the line with the query, a JSON string, in a judge's message."""


class ToolJudge(ModelFree):
    """Answers a judge's message with the engine's verdict."""

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool

    async def respond(self, request: Request) -> Reply:
        """The verdict as JSON.

        Raises PolicyError for a message without a query, EngineError if the engine
        failed, UsageError if the engine cannot judge.
        """
        argument = query_of(request.message.text)
        verdict = await self._pool.judge(request.states[0], argument)
        return Reply(text=msgspec.json.encode(verdict).decode())


def query_of(message: str) -> str:
    """The query in the last line of a message that begins with `Query: `.

    Raises PolicyError if there is none, or if it is not a JSON string.
    """
    for line in reversed(message.splitlines()):
        if not line.startswith(QUERY):
            continue
        try:
            return msgspec.json.decode(line.removeprefix(QUERY), type=str)
        except msgspec.DecodeError as error:
            raise PolicyError(f"policy.kind tool-judge: the query: {error}") from error
    raise PolicyError(
        f"policy.kind tool-judge: the message has no line that begins with {QUERY!r}; "
        "use it as rollout.judge.kind of --method rare-tool"
    )
