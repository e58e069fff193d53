"""The progress of a stage, into a pipe and on a terminal."""

import io
import pty
import re
import select

import pytest
from agentcli.reports.progress import TerminalProgress
from agentcli.reports.standing import Standing
from agentcli.stages.session import Within
from rich.console import Console


def progress_into(text: io.StringIO, terminal: bool, **switches: bool) -> TerminalProgress:
    return TerminalProgress(console=Console(file=text, force_terminal=terminal, width=200, soft_wrap=True), **switches)


def play(progress: TerminalProgress) -> None:
    progress.start(Standing("rollout", 4, done=1))
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


def test_what_was_done_earlier_is_part_of_the_success_and_no_part_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr("agentcli.reports.progress.time.monotonic", lambda: seconds[0])
    text = io.StringIO()
    progress = progress_into(text, terminal=False)
    for earlier, shown in ((0.25, "success 0.40"), (None, "success 1.00"), (0.0, "success 0.20")):
        progress.start(Standing("eval", 5, done=4, success=earlier))
        seconds[0] += 2
        progress.advance(1, success=1.0)
        progress.stop()
        assert text.getvalue().splitlines()[-1] == f"eval: 5/5, {shown}, 30.00/min, 2.0 s"


def test_a_note_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", text := io.StringIO())
    TerminalProgress().note("[bold]:skull:")
    assert text.getvalue() == "[bold]:skull:\n"


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
    progress.start(Standing("sft", None))
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


def test_a_pty_shows_a_bar_with_count_success_rate_and_time_left() -> None:
    """What a person sees in a terminal of 100 columns while a job runs."""
    shown = on_a_pty({"TERM": "xterm-256color"})
    assert "━" in shown
    assert "\x1b[" in shown
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"rollout \[x\] ━+.* +3/8 +success 0\.50, loss 0\.25, [0-9.]+/s +0:00:0[0-9]", words), words


def test_no_color_is_honoured_on_a_pty() -> None:
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9](;|m)")
    assert colour.search(on_a_pty({"TERM": "xterm-256color"}))
    assert not colour.search(on_a_pty({"TERM": "xterm-256color", "NO_COLOR": "1"}))


def on_a_pty(environment: dict[str, str]) -> str:
    """Everything a terminal received from a job that had done 3 of 8 things."""
    ours, theirs = pty.openpty()
    text = b""
    with open(theirs, "w", encoding="utf-8") as terminal, open(ours, "rb", buffering=0) as reader:
        console = Console(file=terminal, width=100, soft_wrap=True, _environ=environment)
        progress = TerminalProgress(console=console)
        progress.start(Standing("rollout [x]", 8))
        for _ in range(3):
            progress.advance(1, success=0.5, figures={"loss": 0.25})
        while text.count(b"3/8") < 2:
            assert select.select([reader], [], [], 10)[0], text
            text += reader.read(65536)
        progress.stop()
    return text.decode()


def test_a_long_job_writes_a_line_each_half_minute_with_rate_success_and_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("agentcli.reports.progress.time.monotonic", lambda: seconds[0])
    text = io.StringIO()
    progress = progress_into(text, terminal=False)
    progress.start(Standing("run", 100, done=50))
    for step in range(10):
        seconds[0] += 10
        progress.advance(1, success=float(step % 2), figures={"loss": 1 / (1 + step)})
    assert text.getvalue().splitlines() == [
        "run: 53/100, success 0.33, loss 0.3333, 6.00/min, 0:07:50 left",
        "run: 56/100, success 0.50, loss 0.1667, 6.00/min, 0:07:20 left",
        "run: 59/100, success 0.44, loss 0.1111, 6.00/min, 0:06:50 left",
    ]


def test_a_loop_shows_the_phase_and_its_rate_leaves_the_first_wait_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr("agentcli.reports.progress.time.monotonic", lambda: seconds[0])
    text = io.StringIO()
    loop = progress_into(text, terminal=False)
    stage = Within(loop, "success")
    loop.start(Standing("run", 4))
    stage.wait("loading model")
    seconds[0] += 100
    stage.start(Standing("rollout", 8))
    stage.advance(2, success=0.5)
    seconds[0] += 30
    stage.advance(2, success=1.0)
    seconds[0] += 30
    loop.advance(1, figures={"success": 0.75})
    stage.wait("loading model")
    seconds[0] += 40
    stage.start(Standing("train", None))
    assert text.getvalue().splitlines() == [
        "run: 0/4, rollout 0/8",
        "run: 0/4, rollout 4/8, success 0.75",
        "run: 1/4, success 0.75, 1.00/min, 0:03:00 left",
        "run: 1/4, train 0, success 0.75, 0:02:20 left",
    ]


def test_no_time_is_promised_before_what_is_in_flight_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr("agentcli.reports.progress.time.monotonic", lambda: seconds[0])
    text = io.StringIO()
    progress = progress_into(text, terminal=False)
    progress.start(Standing("rollout", 240, together=32))
    for count in (2, 30, 32):
        seconds[0] += 30
        progress.advance(count)
    assert text.getvalue().splitlines() == [
        "rollout: 2/240",
        "rollout: 32/240, 32.00/min, 0:06:30 left",
        "rollout: 64/240, 42.67/min, 0:04:08 left",
    ]


def test_a_terminal_sees_what_is_waited_for_and_a_pipe_does_not() -> None:
    shown, piped = io.StringIO(), io.StringIO()
    for progress in (progress_into(shown, terminal=True), progress_into(piped, terminal=False)):
        progress.wait("loading \x1b[31mmodel")
        progress.stop()
    assert "\\x1b[31mmodel" in shown.getvalue()
    assert piped.getvalue() == ""


@pytest.mark.parametrize(("rate", "shown"), [(12, "12.00/s"), (1, "1.00/s"), (0.5, "30.00/min"), (0.01, "36.00/h")])
def test_rates_are_told_in_a_unit_that_reads_well(rate: float, shown: str) -> None:
    from agentcli.reports.progress import _per_time

    assert _per_time(rate) == shown
