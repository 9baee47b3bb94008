"""A gated recurrent unit whose update gate an attention score scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ipusim.model.layers.gru import GRU


@dataclass(frozen=True)
class AUGRU(GRU):
    """A gated recurrent unit with an attention score for each time step, which stands behind the input's elements.

    Zhou et al. 2019 (DIEN), as PopLibs' ``auGruFwd`` computes it: with score a the update gate z becomes (1 - a) * z.
    So a score of 0 is a GRU's step, and one of 1 takes the candidate alone. A layer side by side with the input, as
    ``parallel`` has them, gives scores that learn.
    """

    kind: ClassVar = "augru"
    attended: ClassVar[bool] = True
