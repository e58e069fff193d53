"""The memory of an engine process, with all that its engines run."""

import os
from pathlib import Path

SESSION, PAGES = 3, 21
"""Places in /proc/PID/stat after the name: its session, and its resident pages."""


def resident_mb(session: int) -> float:
    """MiB that the processes of a session hold; 0 where there is no /proc."""
    pages = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            # It has just ended.
            continue
        fields = text.rpartition(")")[2].split()
        if int(fields[SESSION]) == session:
            pages += int(fields[PAGES])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
