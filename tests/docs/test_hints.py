"""Every command that an error, a table or a help page tells to type is one."""

import pytest
from command_line import parse
from hints import Hint, hints, unclear

HINTS = hints()


def test_every_hint_can_be_read() -> None:
    """Write it in backticks, or after a colon at the end; or list its text in PROSE of tests/support/hints.py."""
    assert not list(unclear())


@pytest.mark.parametrize("hint", HINTS, ids=[hint.text for hint in HINTS])
def test_a_hint_is_a_command(hint: Hint) -> None:
    for words in hint.commands:
        assert "{" not in " ".join(words), f"{hint.place}: give the value a place in VALUES of tests/support/hints.py"
        parse(words)
