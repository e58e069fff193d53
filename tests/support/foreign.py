"""The files in tests/data/foreign, made by foreign_samples.py with --groups 4 --size 3 and packed by gzip -9n."""

import gzip
import json
import shutil
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "foreign"
FORMATS = {"verifiers": "traces.jsonl", "messages": "chats.jsonl", "inspect": "log.eval"}
"""Each format with its file."""


def unpacked(folder: Path) -> Path:
    """`folder` with the files as the libraries wrote them."""
    for packed in DATA.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    shutil.copy(DATA / "log.eval", folder)
    return folder


def traces(folder: Path) -> list[dict]:
    """The traces of traces.jsonl, as the library wrote them."""
    lines = (folder / "traces.jsonl").read_text(encoding="utf-8").splitlines()
    return [trace for line in lines for trace in json.loads(line)["traces"]]
