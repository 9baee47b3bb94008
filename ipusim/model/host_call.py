"""A host call of a stage in the middle of a pass: bytes sent, work of the host, bytes returned."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.model.work import Work


@dataclass(frozen=True)
class HostCall:
    """One call of the host.

    Attributes:
        name: of the scope, as the user calls it.
        work: the host's operations, one after another.
        sent_bytes: of the arrays that the IPU has and the host needs.
        returned_bytes: of the arrays that the host makes and the IPU needs.
    """

    name: str
    work: tuple[Work, ...] = ()
    sent_bytes: int = 0
    returned_bytes: int = 0
