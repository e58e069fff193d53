"""Of several processes that torchrun started, the first one speaks."""

import pytest
from agentcli.cli.errors import say
from agentcli.records.processes import rank


@pytest.mark.parametrize(("number", "expected"), [(None, 0), ("", 0), ("0", 0), ("3", 3), ("x", 0)])
def test_the_launcher_numbers_the_processes(monkeypatch: pytest.MonkeyPatch, number: str | None, expected: int) -> None:
    monkeypatch.delenv("RANK", raising=False)
    if number is not None:
        monkeypatch.setenv("RANK", number)
    assert rank() == expected


def test_an_error_of_another_process_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say("no room")
    monkeypatch.setenv("RANK", "1")
    say("no room")
    assert capsys.readouterr().err.splitlines() == ["error: no room", "error: process 1: no room"]
