"""Runs as an older agentcli left them."""

from pathlib import Path

from agentcli.records.files import write_json
from agentcli.records.runs import RunDirectory


def without_checksums(run: Path) -> None:
    """Removes the checksums from the manifest."""
    directory = RunDirectory(run)
    manifest = directory.load_manifest()
    for record in manifest.stages.values():
        record.outputs.clear()
    write_json(directory.manifest_path, manifest)
