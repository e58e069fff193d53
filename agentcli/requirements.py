"""The requirements of agentcli, of its core and of its extras.

They are read from the metadata of the installed package.
"""

from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "agentcli"
CORE = ""
"""Stands for the core among the names of extras."""


def requirements() -> dict[str, list["Requirement"]]:
    """The requirements of the core and of each extra, by the extra's name.

    Raises PackageNotFoundError where agentcli is imported from a folder and not
    installed.
    """
    from packaging.requirements import Requirement

    about = metadata.metadata(PACKAGE)
    extras = about.get_all("Provides-Extra") or []
    wanted: dict[str, list[Requirement]] = {name: [] for name in (CORE, *extras)}
    for line in about.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        for extra, needed in wanted.items():
            if marker is None or marker.evaluate({"extra": extra}):
                needed.append(requirement)
                # The core comes first, and no extra adds what it has.
                if extra == CORE:
                    break
    return wanted


def lacking(extra: str) -> str | None:
    """The command that installs an extra; None if it is there, or cannot be known."""
    try:
        for requirement in requirements()[extra]:
            metadata.version(requirement.name)
    except metadata.PackageNotFoundError as error:
        # Without agentcli itself, its requirements are not known.
        return None if error.name == PACKAGE else f"pip install '{PACKAGE}[{extra}]'"
    return None


def remedy_for(module: str) -> str:
    """The command that installs a module which cannot be imported.

    It names the extra that states a package of this name, else the package.
    """
    from packaging.utils import canonicalize_name

    package = module.partition(".")[0]
    try:
        wanted = requirements()
    except metadata.PackageNotFoundError:
        wanted = {}
    for extra, needed in wanted.items():
        names = [canonicalize_name(requirement.name) for requirement in needed]
        if canonicalize_name(package) not in names:
            continue
        if extra == CORE:
            return f"pip install --upgrade {PACKAGE}"
        return f"pip install '{PACKAGE}[{extra}]'"
    return f"pip install {package}"
