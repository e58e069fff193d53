"""The tree of errors that is drawn in the docstring is the one that the classes make."""

import inspect
import re

from agentcli import errors

LINE = re.compile(r"^ {4}(?P<branch>[| `-]*)(?P<name>\w+Error) +(?P<code>\d+) ", re.MULTILINE)


def drawn() -> list[tuple[int, str, int]]:
    """(depth, name, exit code) of every line of the drawing."""
    text = errors.__doc__ or ""
    return [(len(line["branch"]) // 4, line["name"], int(line["code"])) for line in LINE.finditer(text)]


def test_the_drawing_is_the_tree() -> None:
    path: list[type] = []
    for depth, name, code in drawn():
        kind = getattr(errors, name)
        assert kind.exit_code == code
        path[depth:] = [kind]
        assert [part for part in reversed(kind.__mro__) if part in path] == path


def test_every_class_is_drawn() -> None:
    classes = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert classes == {name for _, name, _ in drawn()}
