"""Describe the work of a layer's pass over a micro-batch: products, vector operations by kind, bytes.

Work describes shapes without time: :mod:`ipusim.pricing` converts work to cycles on a given IPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final


@dataclass(frozen=True)
class Product:
    """Matrix products of equal shape: (m, k) by (k, n).

    Attributes:
        m, k, n: rows of the result, summed length, columns of the result.
        groups: number of parallel products, with separate operands.
        times: number of consecutive products.
        shared_rows: number of rows of the result made from the same elements of the first operand; 1 if rows share no
            elements. In the gradient of a convolution's kernel, the rows of the taps share the image.
    """

    m: int
    k: int
    n: int
    groups: int = 1
    times: int = 1
    shared_rows: int = 1

    @property
    def macs(self) -> int:
        """Total multiply-accumulates."""
        return self.m * self.k * self.n * self.groups * self.times


@dataclass(frozen=True)
class Convolution:
    """A convolution, or the convolution that computes its gradient.

    Attributes:
        positions: results per channel: micro-batch times positions in every dimension.
        channels, filters: input and output channels of a group.
        taps: positions of the kernel.
        stride: input positions per result, over both dimensions.
        groups: number of parallel groups with separate channels; for depthwise convolutions the number of channels.
    """

    positions: int
    channels: int
    filters: int
    taps: int
    stride: int = 1
    groups: int = 1

    @property
    def macs(self) -> int:
        """Total multiply-accumulates of the groups."""
        return self.positions * self.channels * self.filters * self.taps * self.groups


@dataclass(frozen=True)
class VectorWork:
    """Numbers of vector operations by kind: per element, or in total if multiplied by a number of elements.

    Attributes:
        elementwise: sums, differences, products, comparisons, choices of elements, draws.
        reductions: elements that enter a sum or a maximum.
        quotients: divisions of elements.
        transcendentals: evaluations of exp, log, tanh, square root and similar. Sigmoid counts once, as a single tile
            instruction.

    Example:
        >>> from ipusim.api import VectorWork
        >>> (VectorWork(elementwise=2, transcendentals=1) * 100).transcendentals
        100
    """

    elementwise: int = 0
    reductions: int = 0
    quotients: int = 0
    transcendentals: int = 0

    def __add__(self, other: VectorWork) -> VectorWork:
        """Return the sum of two works."""
        return VectorWork(
            self.elementwise + other.elementwise,
            self.reductions + other.reductions,
            self.quotients + other.quotients,
            self.transcendentals + other.transcendentals,
        )

    def __mul__(self, times: int) -> VectorWork:
        """Return the work multiplied by ``times``."""
        return VectorWork(
            self.elementwise * times, self.reductions * times, self.quotients * times, self.transcendentals * times
        )

    __rmul__ = __mul__

    def __sub__(self, other: VectorWork) -> VectorWork:
        """Return the work without ``other``, a part of this work."""
        return self + other * -1

    def __bool__(self) -> bool:
        """Whether there is any work."""
        return self != NO_VECTOR_WORK


#: Empty vector work.
NO_VECTOR_WORK = VectorWork()


@dataclass(frozen=True)
class Work:
    """Work of a layer in a pass over a micro-batch.

    Attributes:
        products: consecutive products for the matrix unit (AMP).
        vector: other floating-point operations, done by the vector units.
        sram_bytes: bytes read from and written to tile memory.
        exchange_bytes: bytes received by tiles over the on-chip exchange, without operands of products, which depend on
            the product's layout over tiles.
        itemsize: bytes per element, which sets the arithmetic rate (2 or 4; 8 counts as 4).
        compute_sets: consecutive bulk-synchronous steps of the vector work, without steps of products. A reduction over
            tiles takes two steps: over a tile's elements, then over the tiles' results.
        convolution: whether convolution options apply to the products.
        partials_itemsize: bytes of a product's partial sums, 2 or 4, at least the itemsize.
        memory_proportion: share of a tile's memory available to a product; None for PopLibs' default.
        units: indivisible parts of a pool's vector work, distributed over workers; 0 for evenly spread work.
        variables: number of variables updated by this work; 0 for a pass.

    Example:
        >>> from ipusim.api import VectorWork, Work, models
        >>> work = Work(products=(models.Product(m=4, k=8, n=2),), vector=VectorWork(elementwise=8), itemsize=2)
        >>> work.macs
        64
    """

    products: tuple[Product | Convolution, ...] = ()
    vector: VectorWork = NO_VECTOR_WORK
    sram_bytes: int = 0
    exchange_bytes: int = 0
    itemsize: int = 4
    compute_sets: int = 1
    convolution: bool = False
    partials_itemsize: int = 4
    memory_proportion: Fraction | None = None
    units: int = 0
    variables: int = 0

    @property
    def macs(self) -> int:
        """Total multiply-accumulates of the products."""
        return sum(product.macs for product in self.products)

    @property
    def is_nothing(self) -> bool:
        """Whether the work has no operations and no bytes; such work costs nothing, not even a compute set."""
        return not (self.macs or self.vector or self.sram_bytes or self.exchange_bytes)


def part_of(work: Work, parts: int) -> Work:
    """Return ``work`` with the vector work and tile memory bytes of the longest of ``parts`` equal parts."""
    vector = work.vector
    kinds = (vector.elementwise, vector.reductions, vector.quotients, vector.transcendentals)
    return replace(
        work, vector=VectorWork(*(-(-count // parts) for count in kinds)), sram_bytes=-(-work.sram_bytes // parts)
    )


@dataclass(frozen=True)
class MappingWork(Work):
    """Work of a gradient map; as a class of its own it never equals an addition or an update."""


@dataclass(frozen=True)
class MeasuredWork(Work):
    """A layer's pass of measured cycles, the same on any IPU."""

    cycles: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether the pass takes no cycles."""
        return not self.cycles


@dataclass(frozen=True)
class WorkSequence(Work):
    """A layer's pass made of other layers' passes; the other fields are sums over the parts."""

    parts: tuple[Work, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether every part is empty."""
        return all(part.is_nothing for part in self.parts)


def work_of(
    itemsize: int,
    *,
    products: tuple[Product | Convolution, ...] = (),
    vector: VectorWork = NO_VECTOR_WORK,
    accesses: int = 0,
    exchanged: int = 0,
    compute_sets: int = 1,
    convolution: bool = False,
) -> Work:
    """Return the work of a pass over elements of equal size.

    Args:
        itemsize: bytes per element.
        products, vector, compute_sets, convolution: attributes of :class:`Work`.
        accesses: elements read from or written to tile memory.
        exchanged: elements received by tiles over the exchange.
    """
    traffic = accesses * itemsize, exchanged * itemsize
    return Work(products, vector, *traffic, itemsize, compute_sets, convolution)


def in_turn(parts: tuple[Work, ...], itemsize: int) -> WorkSequence:
    """Return the work of consecutive ``parts`` as a single pass."""
    return WorkSequence(
        products=tuple(product for work in parts for product in work.products),
        vector=sum((work.vector for work in parts), NO_VECTOR_WORK),
        sram_bytes=sum(work.sram_bytes for work in parts),
        exchange_bytes=sum(work.exchange_bytes for work in parts),
        itemsize=itemsize,
        compute_sets=sum(work.compute_sets for work in parts),
        parts=parts,
    )


def in_one(
    first: Work, second: Work, products: tuple[Product | Convolution, ...], sram_bytes: int, exchange_bytes: int = 0
) -> Work:
    """Return the work of two parts, such as backward halves, merged into a pass.

    ``products``, ``sram_bytes`` and ``exchange_bytes`` describe the merged pass.
    """
    return replace(
        first,
        products=products,
        vector=first.vector + second.vector,
        sram_bytes=sram_bytes,
        exchange_bytes=exchange_bytes,
        compute_sets=first.compute_sets + second.compute_sets,
    )


#: Bytes of a row id, a 32-bit number on IPUs.
ID_BYTES: Final = 4


@dataclass(frozen=True)
class TableBytes:
    """Bytes moved between a stage's IPU and tables on the host, per micro-batch.

    Attributes:
        ids: ids of the requested rows, sent to the host.
        rows: rows returned by the host.
        gradients: row gradients sent back with the ids, in training; 0 if no table is trained.
    """

    ids: int = 0
    rows: int = 0
    gradients: int = 0

    @property
    def returned_bytes(self) -> int:
        """Bytes sent to the host after a backward pass: gradients and their row ids."""
        return self.ids + self.gradients if self.gradients else 0

    def __add__(self, other: TableBytes) -> TableBytes:
        """Return the sum of both traffics."""
        return TableBytes(self.ids + other.ids, self.rows + other.rows, self.gradients + other.gradients)


#: Traffic of a stage without tables on the host.
NO_TABLES: Final = TableBytes()
