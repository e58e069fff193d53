"""Notes the call stacks on the way of one action to its engine.

One is noted where the action is sent to the engine's process, one where that engine
steps.

measure_house.py puts this file under the name sitecustomize into the path of a rollout,
so that every process of it runs it first. Frames of the package are counted; of a
coroutine in a task of its own, also those that started the task.
"""

import asyncio
import json
import os
import sys
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = os.environ["HOPS_ROOT"]
STARTERS: "weakref.WeakKeyDictionary[Any, list[str]]" = weakref.WeakKeyDictionary()
"""By task: the package's functions from `main` to where it was started, those below the
event loop left out.
"""


def named(frame: FrameType) -> str | None:
    """A function of the package by file and name; None for other frames."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
        return None
    return f"{os.path.relpath(code.co_filename, PACKAGE)}:{code.co_name}"


def split_stack(frame: FrameType | None) -> tuple[list[str], list[str]]:
    """(below the event loop, above it), each outermost first."""
    above: list[str] = []
    below: list[str] = []
    part = above
    while frame is not None:
        name = named(frame)
        if name is not None:
            part.append(name)
        elif frame.f_code.co_name == "run_forever":
            part = below
        frame = frame.f_back
    if part is above:
        return above[::-1], []
    return below[::-1], above[::-1]


def whole_stack(frame: FrameType) -> list[str]:
    """All functions of the package that led here."""
    below, above = split_stack(frame)
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    starters = STARTERS.get(task, []) if task is not None else []
    return [*below, *starters, *above]


def watch(frame: FrameType, event: str, argument: object) -> None:
    """The profile function: notes the first stack of each kind."""
    if event != "call":
        return
    name = named(frame)
    if name is None:
        return
    folder, _, function = name.rpartition(":")
    if function == "write" and folder.endswith("link.py"):
        stack = whole_stack(frame)
        if any(part.endswith("pool.py:step") for part in stack):
            note("sent.json", stack)
    elif function == "step" and folder.endswith("alfworld/engine.py"):
        note("stepped.json", whole_stack(frame))


def note(name: str, stack: list[str]) -> None:
    """Write a stack, unless one was written."""
    path = Path(os.environ["HOPS_FOLDER"]) / name
    if not path.exists():
        path.write_text(json.dumps(stack), encoding="utf-8")


def remember_starters() -> None:
    """Let every task remember the functions that led to its start."""
    create_task = asyncio.BaseEventLoop.create_task

    def create(loop: Any, coroutine: Any, **options: Any) -> Any:
        _, above = split_stack(sys._getframe())
        current = (
            asyncio.current_task(loop) if asyncio._get_running_loop() is loop else None
        )
        before = STARTERS.get(current, []) if current is not None else []
        task = create_task(loop, coroutine, **options)
        STARTERS[task] = [*before, *above]
        return task

    asyncio.BaseEventLoop.create_task = create  # type: ignore[method-assign]


remember_starters()
sys.setprofile(watch)
