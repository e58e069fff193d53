"""rlvmr as its release computes it (Tencent/digitalhuman).

There is one row per step, with prefixes repeated. Only malformed steps are invalid:
they lose their tag and are penalised. A first step counts as following an invalid one
(see rlvmr.py). The only row with a tag keeps its reward.
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
    """Counts only malformed steps as invalid."""
    survey.invalid = [step.validity is Validity.MALFORMED for step in tree.steps]
    survey.penalties = [invalid_penalty * wrong for wrong in survey.invalid]


def grouping(
    keys: Sequence[Hashable],
    entries: Sequence[Entry],
    normalise: str,
) -> Grouping:
    """The rows grouped by tag; a group of one row is not centred."""
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
