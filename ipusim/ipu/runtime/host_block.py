"""Current host block of a program under trace; the host runs the block's operations."""

from __future__ import annotations

from typing import Final

from ipusim.base.errors import ModelError
from ipusim.ipu.runtime.context import Scoped

#: Name of the outermost enclosing host block; None on the IPU.
host_block: Final[Scoped[str | None]] = Scoped("host_block", None)


def check_on_ipu(operation: str, instead: str) -> None:
    """Refuse an operation inside a host block.

    Args:
        operation: the operation, with a verb.
        instead: advice for the program.

    Raises:
        ModelError: inside a host block.
    """
    if (name := host_block()) is not None:
        raise ModelError(f"{operation} in scope {name!r}, whose operations run on the host: {instead}")
