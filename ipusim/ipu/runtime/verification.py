"""Options of transfers between host and device that are encrypted and checked, which none here is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class KeyId:
    """The key that data are encrypted with, and the first of the numbers that they carry; -1 for any."""

    key: int = 0
    start_id: int = -1


@dataclass
class VerificationOptions:
    """A KeyId for each kind of data, and for each infeed and outfeed by name.

    Without effect: what crosses a simulated host link is neither encrypted nor checked.

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
    infeeds: Mapping[str, KeyId] = field(default_factory=lambda: defaultdict(KeyId))
    outfeeds: Mapping[str, KeyId] = field(default_factory=lambda: defaultdict(KeyId))
    checkpoint_in: KeyId = field(default_factory=lambda: KeyId(0, 0))
    checkpoint_out: KeyId = field(default_factory=lambda: KeyId(0, 0))
