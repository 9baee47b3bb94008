"""Track the host block that is being traced; the host runs the operations of a host block."""

from __future__ import annotations

from typing import Final

from ipusim.base.errors import ModelError
from ipusim.ipu.runtime.context import Scoped

#: Name of the outermost enclosing host block; None on the IPU.
host_block: Final[Scoped[str | None]] = Scoped("host_block", None)


def check_on_ipu(*, operation: str, advice: str) -> None:
    """Refuse an operation inside a host block.

    Args:
        operation: begin of the message: the operation and a verb, such as ``table 'ids' is looked up``.
        advice: end of the message, for the author of the program.

    Raises:
        ModelError: if the call is inside a host block.
    """
    if (name := host_block()) is not None:
        raise ModelError(f"{operation} in scope {name!r}, whose operations run on the host: {advice}")
