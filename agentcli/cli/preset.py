"""The commands `agentcli preset ...`."""

import sys
from pathlib import Path

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    COPY_ARGUMENT,
    DRY_RUN,
    JSON,
    OVERWRITE,
    PRESET_ARGUMENT,
    QUIET,
)
from agentcli.errors import UsageError, WriteError


def list_presets(call: Call) -> None:
    """The presets there are, with what each is for."""
    from agentcli.reports.output import print_rows
    from agentcli.stages.layers import list_presets as found

    rows = [
        {
            "preset": path.stem,
            "for": path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "),
        }
        for path in found()
    ]
    print_rows("presets", rows, json=call.values["json"])


def show(call: Call) -> None:
    """Print a preset, comments and all; with --json only what it sets."""
    import json

    from agentcli.stages.yaml_files import read_yaml

    path = _named(call)
    values = read_yaml(path)
    print(
        json.dumps(values)
        if call.values["json"]
        else path.read_text(encoding="utf-8").rstrip()
    )


def copy(call: Call) -> None:
    """Write a preset to FILE, or into FOLDER/, comments and all, to change it there;
    `-c FILE` then takes the place of --preset.
    """
    import shlex

    from agentcli.records.files import write_atomic
    from agentcli.stages.yaml_files import read_yaml

    path = _named(call)
    read_yaml(path)
    file = call.values["file"] or Path(path.name)
    folder = file.is_dir() or any(
        word.endswith("/") and Path(word) == file for word in call.command
    )
    file = file / path.name if folder else file
    if file.exists() and file.samefile(path):
        raise UsageError(f"{file} is the preset itself; name another FILE")
    if file.is_symlink() and not file.exists():
        raise UsageError(f"{file} is a link that leads nowhere; name another FILE")
    call.refuse_existing(file)
    if not call.dry:
        try:
            write_atomic(file, path.read_bytes())
        except WriteError as error:
            raise WriteError(
                f"{str(error).rpartition(';')[0]}; name another FILE"
            ) from error
        if not call.values["quiet"]:
            mine, theirs = (
                shlex.join(["-c", str(file)]),
                shlex.join(["--preset", call.values["preset"]]),
            )
            print(
                f"change it, then type {mine} in the place of {theirs}", file=sys.stderr
            )
    print(file)


def _named(call: Call) -> Path:
    """The preset that was typed. Raises UsageError without one, and with the nearest
    name for an unknown one.
    """
    from agentcli.stages.layers import find_preset

    if call.values["preset"] is None:
        raise UsageError("name a preset; `agentcli preset list` shows them")
    return find_preset(call.values["preset"])


COMMANDS = (
    Command(
        name="list", body=list_presets, options=(JSON,), example="agentcli preset list"
    ),
    Command(
        name="show",
        body=show,
        arguments=(PRESET_ARGUMENT,),
        options=(JSON,),
        example="agentcli preset show quickstart",
    ),
    Command(
        name="copy",
        body=copy,
        arguments=(PRESET_ARGUMENT, COPY_ARGUMENT),
        options=(OVERWRITE, DRY_RUN, QUIET),
        example="agentcli preset copy quickstart mine.yaml",
    ),
)
