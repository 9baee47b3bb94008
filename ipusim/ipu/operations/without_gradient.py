"""What an operation has that no gradient goes back through."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.model.layers.layer import Array, Saved


class WithoutGradient:
    """What an operation says that none goes back through; it is never asked."""

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return none."""
        return []
