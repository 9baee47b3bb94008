"""Accept options for encrypted and checked transfers between host and device; ipusim does neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class KeyId:
    """Encryption key of data, and first sequence number of the data; -1 for any number."""

    key: int = 0
    start_id: int = -1


@dataclass
class VerificationOptions:
    """A KeyId per kind of data, and per infeed and outfeed by name.

    Without effect: data on simulated host links are neither encrypted nor checked.

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
