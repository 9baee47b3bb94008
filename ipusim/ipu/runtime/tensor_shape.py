"""Shapes of tensors, in the place of ``tf.TensorShape``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ipusim.ipu.runtime import checks


class TensorShape(tuple[int | None, ...]):
    """The sizes of axes, None where one is not known."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[Any] | int) -> TensorShape:
        """Take a size for each axis, or one for the only axis; raises ProgramError for no known number of axes.

        Raises ProgramTypeError for what are no whole numbers, and ProgramError for negative ones.
        """
        if dims is None:
            checks.wrong_value("dims", "a size, or None, for each axis: a number of axes is always known", dims)
        axes = [dims] if isinstance(dims, int) else list(dims)
        return super().__new__(cls, (None if axis is None else checks.whole("dims", axis) for axis in axes))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """Return the sizes in a list."""
        return list(self)

    def takes(self, shape: Sequence[int | None]) -> bool:
        """Tell whether a tensor of a shape may have this one: as many axes, and no other size of one."""
        return len(self) == len(shape) and not any(
            None not in (here, there) and here != there for here, there in zip(self, shape, strict=True)
        )

    def is_fully_defined(self) -> bool:
        """Whether each size is known."""
        return None not in self

    def num_elements(self) -> int | None:
        """Return the product of the sizes; None where one is not known."""
        count = 1
        for axis in self:
            if axis is None:
                return None
            count *= axis
        return count
