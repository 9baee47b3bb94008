"""The block of a program that the host runs in the middle of a pass, while it is traced."""

from __future__ import annotations

from typing import Final

from ipusim.base.errors import ModelError
from ipusim.ipu.runtime.context import Scoped

#: Name of the outermost block around the caller; None on the IPU.
host_block: Final[Scoped[str | None]] = Scoped("host_block", None)


def check_on_ipu(what: str, instead: str) -> None:
    """Refuse an operation on the host.

    Args:
        what: the operation, with a verb.
        instead: what a program should do.

    Raises:
        ModelError: inside of a block.
    """
    if (name := host_block()) is not None:
        raise ModelError(f"{what} in scope {name!r}, whose operations run on the host: {instead}")
