"""What agentcli needs of other packages: its core and its extras, as the metadata of
the installed package states them.
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
    stated = [Requirement(line) for line in about.get_all("Requires-Dist") or []]
    core = [
        one
        for one in stated
        if one.marker is None or one.marker.evaluate({"extra": CORE})
    ]
    added = [one for one in stated if one not in core]
    wanted = {CORE: core}
    for extra in about.get_all("Provides-Extra") or []:
        wanted[extra] = [
            one for one in added if one.marker and one.marker.evaluate({"extra": extra})
        ]
    return wanted


def remedy_for(module: str) -> str:
    """What to type where `module` cannot be imported: the extra that states a package
    of this name, else the package.
    """
    from packaging.utils import canonicalize_name

    package = module.partition(".")[0]
    try:
        wanted = requirements()
    except metadata.PackageNotFoundError:
        wanted = {}
    for extra, stated in wanted.items():
        if canonicalize_name(package) in [
            canonicalize_name(one.name) for one in stated
        ]:
            return (
                f"pip install '{PACKAGE}[{extra}]'"
                if extra != CORE
                else f"pip install --upgrade {PACKAGE}"
            )
    return f"pip install {package}"
