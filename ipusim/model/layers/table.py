"""List layers and losses, a row per class, for scenarios and messages.

A class of this package with a ``kind`` is in the table (:mod:`ipusim.model.rows`). A new layer therefore only needs a
module in this package.
"""

from __future__ import annotations

import pkgutil
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ipusim.model.rows import Row, classes, row_of

#: Order of layer modules in messages and docs; other modules follow by name.
_ORDER: Final = (
    *("layers", "glu", "dropout", "embedding", "positions", "normalisation", "convolution"),
    *("transposed_convolution", "depthwise", "pooling"),
    *(
        "lstm",
        "gru",
        "augru",
        "attention",
        "relative_attention",
        "window_attention",
        "squeeze_excite",
        "space_to_depth",
        "residual",
        "parallel",
        "add",
        "concatenate",
        "tied_projection",
        "losses",
    ),
)


@dataclass(frozen=True)
class LayerRow(Row):
    """A layer or a loss.

    Attributes:
        may_be_inner: whether the layer may be inside another layer.
        is_loss: whether the row is a loss.
    """

    may_be_inner: bool
    is_loss: bool


@cache
def rows() -> tuple[LayerRow, ...]:
    """Return the rows: unrestricted layers, then layers limited to the top of a model, then losses.

    Raises ValueError for two layers of one kind.
    """
    names = [module.name for module in pkgutil.iter_modules(sys.modules[__package__].__path__)]
    names.sort(key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    rows_of = [_layer_row(layer) for layer in classes(f"{__package__}.{name}" for name in names)]
    return tuple(sorted(rows_of, key=lambda row: (row.is_loss, not row.may_be_inner)))


def _layer_row(layer: type[Any]) -> LayerRow:
    is_loss = hasattr(layer, "check_labels")
    may_be_inner = not is_loss and getattr(layer, "may_be_inner", True)
    return LayerRow(**vars(row_of(layer)), may_be_inner=may_be_inner, is_loss=is_loss)
