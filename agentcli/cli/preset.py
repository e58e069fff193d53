"""The commands `agentcli preset ...`."""

import shlex
import sys
from pathlib import Path

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option
from agentcli.cli.options import DRY_RUN, JSON, OVERWRITE, PRESET_ARGUMENT, QUIET
from agentcli.errors import UsageError, WriteError

FILE_ARGUMENT = Option("file", "Where to write it; ./PRESET.yaml without it.", Path)


def list_presets(call: Call) -> None:
    """List the presets and the purpose of each."""
    from agentcli.reports.output import print_rows
    from agentcli.stages import layers

    files = layers.list_presets()
    rows = [{"preset": file.stem, "for": layers.purpose_of(file)} for file in files]
    print_rows("presets", rows, json=call.values["json"])


def show(call: Call) -> None:
    """Print a preset with its comments; with --json its settings, what it extends too."""
    import json

    from agentcli.stages.layers import bases_of, file_values
    from agentcli.stages.yaml_files import read_yaml

    file = _typed_preset(call)
    # A file that cannot be read as settings is refused before anything is printed.
    values = file_values(file)
    if call.values["json"]:
        print(json.dumps(values))
        return
    print(file.read_text(encoding="utf-8").rstrip())
    for preset in bases_of(read_yaml(file)):
        print(f"the rest: agentcli preset show {preset}", file=sys.stderr)


def copy(call: Call) -> None:
    """Copy a preset with its comments to FILE or into FOLDER/, to change it there.

    Then use `-c FILE` instead of --preset.
    """
    from agentcli.records.files import write_atomic
    from agentcli.stages.yaml_files import read_yaml

    preset = _typed_preset(call)
    read_yaml(preset)
    file = _destination(call, preset)
    if file.exists() and file.samefile(preset):
        raise UsageError(f"{file} is the preset itself; name another FILE")
    if file.is_symlink() and not file.exists():
        raise UsageError(f"{file} is a link that leads nowhere; name another FILE")
    call.refuse_existing(file)
    if not call.dry:
        try:
            write_atomic(file, preset.read_bytes())
        except WriteError as error:
            # The advice in this error names -o, which this command does not have.
            problem = str(error).rpartition(";")[0]
            raise WriteError(f"{problem}; name another FILE") from error
        if not call.values["quiet"]:
            instead = shlex.join(["--preset", call.values["preset"]])
            words = shlex.join(["-c", str(file)])
            print(
                f"change it, then type {words} in the place of {instead}",
                file=sys.stderr,
            )
    print(file)


def _destination(call: Call, preset: Path) -> Path:
    """FILE; if that is a folder or ends with "/", the preset's name inside it."""
    file: Path = call.values["file"] or Path(preset.name)
    # A Path drops the trailing "/" that was typed.
    ends_with_slash = any(
        word.endswith("/") and Path(word) == file for word in call.words
    )
    return file / preset.name if file.is_dir() or ends_with_slash else file


def _typed_preset(call: Call) -> Path:
    """The preset that was typed. Raises UsageError without one."""
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
        options=(PRESET_ARGUMENT, JSON),
        example="agentcli preset show quickstart",
    ),
    Command(
        name="copy",
        body=copy,
        options=(PRESET_ARGUMENT, FILE_ARGUMENT, OVERWRITE, DRY_RUN, QUIET),
        example="agentcli preset copy quickstart mine.yaml",
    ),
)
