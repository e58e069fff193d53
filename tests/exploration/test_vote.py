"""Ties of test-time branching: log-probabilities decide where all responses have them, else the order of the samples."""

import pytest
from agentcli.exploration.nodes import UNSAID, Response
from agentcli.exploration.test_time_branch import vote
from agentcli.policies.protocol import Reply
from agentcli.prompts.tagged import read_tagged, write_tagged


def sampled(action: str, *logprobs: float) -> Response:
    text = write_tagged("think", "so", action)
    return Response(
        UNSAID, Reply(text=text, token_ids=tuple(range(len(logprobs))), logprobs=logprobs), read_tagged(text)
    )


@pytest.mark.parametrize(
    ("samples", "winner"),
    [
        ([sampled("a", -2.0), sampled("b", -1.0)], "b"),
        ([sampled("a", -1.0), sampled("b", -0.6, -0.6)], "b"),
        ([sampled("b"), sampled("a")], "b"),
        ([sampled("a", -2.0), sampled("b")], "a"),
        ([sampled("b"), sampled("a", -0.1)], "b"),
        ([sampled("b", -0.1), sampled("a", -3.0), sampled("a")], "a"),
    ],
    ids=["likelier", "likelier a token", "none have them", "the other has none", "the first has none", "majority"],
)
def test_who_wins(samples: list[Response], winner: str) -> None:
    assert vote(samples).answer.actions.get(1) == winner
