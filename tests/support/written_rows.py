"""Files of rows, in every format that worlds read."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import zstandard
from pyarrow import parquet


def write(path: Path, rows: list[Any]) -> Path:
    """The rows in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(values) + "\n" for values in rows).encode()
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines))
    else:
        path.write_bytes(zstandard.compress(lines) if path.suffix == ".zst" else lines)
    return path
