"""Rows of tables that lie on the host, in a function that autograd traces: they come in, and their gradients go back.

A table is no variable of the stage. An empty one stands for it in the trace, so that gradients find their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from autograd.extend import defvjp, primitive

from ipusim.model.functions.host_scope import check_on_ipu
from ipusim.model.functions.surrounded import surroundings
from ipusim.model.functions.variables import draw_key, get_variable
from ipusim.model.layers.layer import Array, Key
from ipusim.model.work import ID_BYTES, TableBytes


class HostTable(Protocol):
    """A table on the host.

    Attributes:
        name: of the table.
        learns: whether gradients of its rows go back to it.
    """

    name: str
    learns: bool

    def rows(self, ids: Array, key: Key | None) -> Array:
        """Return the rows of ``ids``; a ``key`` tells in training which look-up of which micro-batch it is.

        The same key again, as where the pass runs again, gives the same rows.
        """

    def learn(self, ids: Array, gradients: Array, key: Key) -> None:
        """Learn from the gradients of the rows of one look-up."""


@dataclass(frozen=True, eq=False)
class _LookUp:
    table: HostTable
    ids: Array
    key: Key | None


def look_up(table: HostTable, ids: Array, name: str) -> Any:
    """Return the rows of whole numbers ``ids`` (...), shape (..., width); ``name`` is the look-up's in its pass.

    Raises ModelError in a scope of the host's.
    """
    check_on_ipu(f"table {table.name!r} is looked up", "its rows come to the IPU, so look them up outside of the scope")
    noted = surroundings().look_ups
    request = _LookUp(table, ids, draw_key(name) if noted is None else None)
    if table.learns:
        rows = rows_of(request, get_variable(f"{table.name}/host", np.zeros(0, np.float32)))
    else:
        rows = table.rows(ids, request.key)
    if noted is not None:
        size = rows.size * rows.dtype.itemsize
        noted.append(TableBytes(ids.size * ID_BYTES, size, size if table.learns else 0))
    return rows


@primitive  # type: ignore[untyped-decorator]
def rows_of(request: _LookUp, _: Any) -> Any:
    """Return the rows."""
    return request.table.rows(request.ids, request.key)


@primitive  # type: ignore[untyped-decorator]
def learn_rows(request: _LookUp, gradients: Any) -> Any:
    """Hand the gradients of a micro-batch's rows to the table; return the gradient of the empty variable."""
    if request.key is not None:
        request.table.learn(request.ids, gradients, request.key)
    return np.zeros(0, np.float32)


defvjp(rows_of, lambda _, request, __: lambda gradients: learn_rows(request, gradients), argnums=(1,))
