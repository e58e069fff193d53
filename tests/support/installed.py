"""A package that is installed for one test: its entry points, found as those of any package are."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(folder: Path, patch: pytest.MonkeyPatch, points: Mapping[str, Mapping[str, str]]) -> None:
    """Puts `folder` on the path, as a package whose entry points are `points`: group -> name -> place."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group, names in points.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {place}" for name, place in names.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    patch.syspath_prepend(str(folder))
