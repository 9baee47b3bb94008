"""Describe a dense product for the planner, by its shape."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ipusim.base.errors import QuantityError


@dataclass(frozen=True)
class Product:
    """``groups`` independent products of an (m, k) matrix by a (k, n) matrix.

    The matrix unit holds blocks of the (m, k) operand and streams the ``n`` rows of the other operand past these
    blocks, like PopLibs' layout of a layer's weights and its batch. Evidence: measured times grow with n from 4 to 16;
    with swapped operands they would not.

    Attributes:
        m: outputs per row, for example a layer's features.
        k: summed inputs.
        n: streamed rows, for example micro-batch times sequence length.
        groups: parallel products.
        itemsize: bytes of an element: 2 or 4.
        partials_itemsize: bytes of a partial sum: 2 or 4, at least the itemsize.
        own_inputs: number of a row's inputs that no other streamed row uses, at most k; 0 stands for k. Rows of a
            convolution share most inputs, since neighbouring taps read the same input one row apart.

    Raises QuantityError for sizes below 1 and types without a matrix unit.
    """

    m: int
    k: int
    n: int
    groups: int = 1
    itemsize: int = 2
    partials_itemsize: int = 4
    own_inputs: int = 0

    def __post_init__(self) -> None:
        """Raise QuantityError for an invalid shape."""
        for field in fields(self)[:-1]:
            if getattr(self, field.name) < 1:
                raise QuantityError(f"product: expected {field.name} of at least 1, got {getattr(self, field.name)}")
        if self.itemsize not in (2, 4):
            raise QuantityError(f"product: expected elements of 2 or 4 bytes, got {self.itemsize}")
        if self.partials_itemsize not in (2, 4) or self.partials_itemsize < self.itemsize:
            sizes = "2 or 4" if self.itemsize == 2 else "4"
            raise QuantityError(f"product: expected partial sums of {sizes} bytes, got {self.partials_itemsize}")
        if not 0 <= self.own_inputs <= self.k:
            raise QuantityError(f"product: expected own_inputs from 0 to k, {self.k}, got {self.own_inputs}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all groups."""
        return self.groups * self.m * self.k * self.n
