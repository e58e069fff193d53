"""The base class of settings sections, and the types of bounded numbers."""

from typing import Annotated

from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**53)]
CountFromZero = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Section(Struct, forbid_unknown_fields=True):
    """Base of all settings sections."""
