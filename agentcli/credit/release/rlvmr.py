"""rlvmr as its release computes it (Tencent/digitalhuman).

Step rows with prefixes repeated. Only malformed steps are invalid: they lose their tag,
and only they are penalised. A first step counts as following an invalid one (rlvmr.py
asks for it). A tag's only row keeps its reward.
"""

from collections.abc import Hashable, Sequence

from agentcli.credit.group import Entry, Grouping
from agentcli.credit.release.group import alone, smallest_std
from agentcli.credit.survey import Survey
from agentcli.records.types import Tree, Validity


def forgive_inadmissible(
    survey: Survey,
    tree: Tree,
    invalid_penalty: float,
) -> None:
    """Count only malformed steps as invalid."""
    survey.invalid = [step.validity is Validity.MALFORMED for step in tree.steps]
    survey.penalties = [invalid_penalty * wrong for wrong in survey.invalid]


def grouping(
    keys: Sequence[Hashable],
    entries: Sequence[Entry],
    normalise: str,
) -> Grouping:
    """The rows of one tag; a group of one row is left as it is."""
    groups = Grouping(
        keys,
        entries,
        normalise,
        smallest_std(normalise),
    )
    for key, scale in groups.scales.items():
        if scale.weight == 1:
            groups.scales[key] = alone(normalise)
    return groups
