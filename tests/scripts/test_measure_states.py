"""measure_states.py says how it is called."""

import subprocess
import sys

import measure_states


def test_without_a_file_it_says_how_it_is_called() -> None:
    answer = subprocess.run(
        [sys.executable, measure_states.__file__], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "error: usage: measure_states.py TREES.jsonl\n"
