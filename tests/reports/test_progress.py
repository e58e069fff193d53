"""The progress of a stage, into a pipe and on a terminal."""

import io

import pytest
from rich.console import Console

from agentcli.reports.progress import Progress


def progress_into(text: io.StringIO, terminal: bool, **switches: bool) -> Progress:
    return Progress(console=Console(file=text, force_terminal=terminal, width=200, soft_wrap=True), **switches)


def play(progress: Progress) -> None:
    progress.start("rollout", 4, done=1)
    progress.note("fresh [optimiser]")
    progress.advance(1, success=1.0)
    progress.advance(2, success=0.25)
    progress.stop()
    progress.stop()


def test_a_pipe_gets_plain_lines_and_no_bar() -> None:
    text = io.StringIO()
    play(progress_into(text, terminal=False))
    lines = text.getvalue().splitlines()
    assert lines[0] == "fresh [optimiser]"
    assert lines[1].startswith("rollout: 4/4, success 0.50, ")
    assert len(lines) == 2
    assert "\x1b" not in text.getvalue()


def test_a_terminal_sees_rate_success_and_count() -> None:
    text = io.StringIO()
    play(progress_into(text, terminal=True))
    shown = text.getvalue()
    assert "4/4" in shown
    assert "success 0.50" in shown
    assert "/s" in shown


def test_without_judged_results_no_success_is_claimed() -> None:
    text = io.StringIO()
    progress = progress_into(text, terminal=False)
    progress.start("sft", None)
    progress.advance()
    progress.stop()
    assert text.getvalue().startswith("sft: 1, ")
    assert "success" not in text.getvalue()


def test_quiet_writes_nothing_and_json_draws_no_bar() -> None:
    quiet, json = io.StringIO(), io.StringIO()
    play(progress_into(quiet, terminal=True, quiet=True))
    play(progress_into(json, terminal=True, json=True))
    assert quiet.getvalue() == ""
    assert len(json.getvalue().splitlines()) == 2


def test_a_long_job_writes_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("agentcli.reports.progress.time.monotonic", lambda: next(clock))
    text = io.StringIO()
    progress = progress_into(text, terminal=False)
    progress.start("run", 100)
    for _ in range(10):
        progress.advance()
    assert 2 <= len(text.getvalue().splitlines()) < 10
