"""The worked example of the package's docstring: its numbers are what the methods give."""

import doctest

from agentcli import credit


def test_the_worked_example_is_true() -> None:
    result = doctest.testmod(credit)
    assert result.attempted > 10
    assert result.failed == 0
