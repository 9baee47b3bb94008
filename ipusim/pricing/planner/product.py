"""The shape of one dense product, as the planner takes it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ipusim.base.errors import QuantityError


@dataclass(frozen=True)
class Product:
    """``groups`` products of an (m, k) matrix by a (k, n) matrix, of which nothing is shared between groups.

    The matrix unit holds blocks of the (m, k) operand and streams the ``n`` rows of the other past them, as
    PopLibs lays out a layer's weights and its batch. That measured products at n from 4 to 16 grow with n,
    which they would not with the operands the other way round, is the evidence for it.

    Attributes:
        m: outputs of each row, such as the features that a layer gives.
        k: inputs that are summed over.
        n: rows that stream past, such as the micro-batch times the sequence.
        groups: products side by side.
        itemsize: bytes of an element: 2 or 4.
        partials_itemsize: bytes of a partial sum: 2, or 4; no less than an element has.
        own_inputs: inputs of a row that no other row streams as well, at most k; 0 for all of them. Rows of a
            convolution share most: what one tap sees, its neighbour sees a row later.

    Raises QuantityError for sizes below 1 and for types that the matrix unit does not have.
    """

    m: int
    k: int
    n: int
    groups: int = 1
    itemsize: int = 2
    partials_itemsize: int = 4
    own_inputs: int = 0

    def __post_init__(self) -> None:
        """Raise QuantityError for a shape of no product."""
        for field in fields(self)[:-1]:
            if getattr(self, field.name) < 1:
                raise QuantityError(f"product: expected {field.name} of at least 1, got {getattr(self, field.name)}")
        if self.itemsize not in (2, 4):
            raise QuantityError(f"product: expected elements of 2 or 4 bytes, got {self.itemsize}")
        if self.partials_itemsize not in (2, 4) or self.partials_itemsize < self.itemsize:
            expected = "2 or 4" if self.itemsize == 2 else "4"
            raise QuantityError(f"product: expected partial sums of {expected} bytes, got {self.partials_itemsize}")
        if not 0 <= self.own_inputs <= self.k:
            raise QuantityError(f"product: expected own_inputs from 0 to k, {self.k}, got {self.own_inputs}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all groups."""
        return self.groups * self.m * self.k * self.n
