"""Keys of verified transfers: what a program says of them, which a simulated host link has no use for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class KeyId:
    """The key that data are encrypted with, and the first of the numbers that they carry; -1 for any."""

    key: int = 0
    start_id: int = -1


def _keys() -> defaultdict[str, KeyId]:
    return defaultdict(KeyId)


@dataclass
class VerificationOptions:
    """A KeyId for each kind of data, and for each infeed and outfeed by its name.

    >>> options = VerificationOptions()
    >>> options.inputs.key = 1
    >>> options.infeeds["infeed"].key = 3
    >>> options.infeeds["infeed"]
    KeyId(key=3, start_id=-1)
    """

    inputs: KeyId = field(default_factory=KeyId)
    input_parameters: KeyId = field(default_factory=KeyId)
    outputs: KeyId = field(default_factory=KeyId)
    output_parameters: KeyId = field(default_factory=KeyId)
    infeeds: Mapping[str, KeyId] = field(default_factory=_keys)
    outfeeds: Mapping[str, KeyId] = field(default_factory=_keys)
    checkpoint_in: KeyId = field(default_factory=lambda: KeyId(0, 0))
    checkpoint_out: KeyId = field(default_factory=lambda: KeyId(0, 0))
