"""Define a gated recurrent unit with an update gate scaled by an attention score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipusim.model.layers.gru import GRU


@dataclass(frozen=True)
class AUGRU(GRU):
    """A gated recurrent unit with an attention score per time step, placed after the input's elements.

    Zhou et al. 2019 (DIEN), computed like PopLibs' ``auGruFwd``: with score a, the update gate z becomes (1 - a) * z. A
    score of 0 gives a plain GRU step, a score of 1 the candidate alone. A layer parallel to the input, inside
    ``parallel``, provides trained scores.
    """

    kind: ClassVar = "augru"
    attended: ClassVar[bool] = True
