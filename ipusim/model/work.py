"""Work of one layer's pass over one micro-batch: products, vector operations by kind, and bytes.

Work knows shapes, not time: :mod:`ipusim.pricing` turns it into cycles on a given IPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final


@dataclass(frozen=True)
class Product:
    """Matrix products of one shape: (m, k) by (k, n).

    Attributes:
        m, k, n: rows of the result, length of its sums, columns of the result.
        groups: how many run side by side, on operands of their own.
        times: how often they run one after another.
        shared: rows that take the same elements of the first operand; 1 where each has its own. In the gradient of
            a convolution's kernel the rows of all its taps take the same image.
    """

    m: int
    k: int
    n: int
    groups: int = 1
    times: int = 1
    shared: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all of them."""
        return self.m * self.k * self.n * self.groups * self.times


@dataclass(frozen=True)
class Convolution:
    """A convolution, or the one by which its gradient comes back.

    Attributes:
        positions: results of one channel: micro-batch times positions in all dimensions.
        channels, filters: that go in and that come out, of one group.
        taps: positions of the kernel.
        stride: input positions to a result, in all dimensions together.
        groups: how many run side by side, on channels of their own: as many as channels in depthwise ones.
    """

    positions: int
    channels: int
    filters: int
    taps: int
    stride: int = 1
    groups: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all groups."""
        return self.positions * self.channels * self.filters * self.taps * self.groups


@dataclass(frozen=True)
class VectorWork:
    """The work of the vector units, by kind; of one element, or of as many as it is multiplied with.

    Attributes:
        elementwise: sums, differences, products, comparisons, choices of elements, draws.
        reductions: elements that go into a sum or a maximum of several.
        quotients: divisions of elements.
        transcendentals: evaluations of exp, log, tanh, a square root and the like. Sigmoid is one,
            since tiles have it as one instruction.

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
        """Return the work of both."""
        return VectorWork(
            self.elementwise + other.elementwise,
            self.reductions + other.reductions,
            self.quotients + other.quotients,
            self.transcendentals + other.transcendentals,
        )

    def __mul__(self, times: int) -> VectorWork:
        """Return the work so many times."""
        return VectorWork(
            self.elementwise * times, self.reductions * times, self.quotients * times, self.transcendentals * times
        )

    __rmul__ = __mul__

    def __sub__(self, other: VectorWork) -> VectorWork:
        """Return the work without ``other``, a part of it."""
        return self + other * -1

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self != NO_VECTOR_WORK


#: None of any kind.
NO_VECTOR_WORK = VectorWork()


@dataclass(frozen=True)
class Work:
    """The work of one layer in one pass over one micro-batch.

    Attributes:
        products: what the matrix unit (AMP) can take, one after another.
        vector: all other floating-point operations, done by the vector units.
        sram_bytes: bytes read from and written to tile memory.
        exchange_bytes: bytes that tiles receive over the on-chip exchange, beside the operands of products: those
            follow from how a product is laid over the tiles.
        itemsize: bytes of one element, which sets the arithmetic rate (2 or 4; 8 counts as 4).
        compute_sets: bulk-synchronous steps of the vector work, which follow each other; a reduction over tiles
            takes two, of each tile's elements and of the tiles' results. Those of products are not among them.
        convolution: whether the products are those of a convolution, which has options of its own.
        partials_itemsize: bytes of a product's partial sums, 2 or 4; no fewer than an element has.
        memory_proportion: share of a tile's memory that a product may take for itself; None for PopLibs' default.
        units: parts of a pool's vector work that no two workers share; 0 for work that is spread evenly.
        variables: of a weight update that this is of; 0 for work of a pass.

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
        """Multiply-accumulates of all products."""
        return sum(product.macs for product in self.products)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is asked, which takes no compute set either."""
        return not (self.macs or self.vector or self.sram_bytes or self.exchange_bytes)


def part_of(work: Work, parts: int) -> Work:
    """Return the vector work on one of several equal parts of the elements, and its bytes; the longest part."""
    vector = work.vector
    kinds = (vector.elementwise, vector.reductions, vector.quotients, vector.transcendentals)
    return replace(
        work, vector=VectorWork(*(-(-count // parts) for count in kinds)), sram_bytes=-(-work.sram_bytes // parts)
    )


@dataclass(frozen=True)
class MappingWork(Work):
    """The work of a function of gradients: never alike an addition or an update, whatever its numbers."""


@dataclass(frozen=True)
class MeasuredWork(Work):
    """A layer's pass of measured cycles, the same on any IPU."""

    cycles: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether it takes no cycles."""
        return not self.cycles


@dataclass(frozen=True)
class WorkSequence(Work):
    """A layer's pass that is made of other layers' passes; the other fields are the sums of theirs."""

    parts: tuple[Work, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether no part asks anything."""
        return all(part.is_nothing for part in self.parts)


def work_of(
    itemsize: int,
    *,
    products: tuple[Product | Convolution, ...] = (),
    vector: VectorWork = NO_VECTOR_WORK,
    touched: int = 0,
    exchanged: int = 0,
    compute_sets: int = 1,
    convolution: bool = False,
) -> Work:
    """Return the work of a pass over elements of one size.

    Args:
        itemsize: bytes of an element.
        products, vector, compute_sets, convolution: as of :class:`Work`.
        touched: elements that are read from tile memory and written to it.
        exchanged: elements that tiles receive over the exchange.
    """
    traffic = touched * itemsize, exchanged * itemsize
    return Work(products, vector, *traffic, itemsize, compute_sets, convolution)


def in_turn(parts: tuple[Work, ...], itemsize: int) -> WorkSequence:
    """Return the work of ``parts`` one after another as one pass."""
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
    """Return the work of two, such as the halves of a backward pass, in one pass with these products and bytes."""
    return replace(
        first,
        products=products,
        vector=first.vector + second.vector,
        sram_bytes=sram_bytes,
        exchange_bytes=exchange_bytes,
        compute_sets=first.compute_sets + second.compute_sets,
    )


#: Bytes of an id of a row, a 32-bit number on IPUs.
ID_BYTES: Final = 4


@dataclass(frozen=True)
class TableBytes:
    """The bytes that a stage moves between its IPU and tables on the host for one micro-batch.

    Attributes:
        ids: which rows it asks for, which go to the host.
        rows: what comes from there.
        gradients: what goes back there with the ids, in training; 0 where no table learns.
    """

    ids: int = 0
    rows: int = 0
    gradients: int = 0

    @property
    def back(self) -> int:
        """All that goes to the host behind a backward pass: the gradients, with the ids of their rows."""
        return self.ids + self.gradients if self.gradients else 0

    def __add__(self, other: TableBytes) -> TableBytes:
        """Return the bytes that both move."""
        return TableBytes(self.ids + other.ids, self.rows + other.rows, self.gradients + other.gradients)


#: Of a stage without tables on the host.
NO_TABLES: Final = TableBytes()
