"""Describe a stage's host call in the middle of a pass: bytes sent, host work, bytes returned."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.model.work import Work


@dataclass(frozen=True)
class HostCall:
    """Call of the host.

    Attributes:
        name: scope name chosen by the user.
        work: consecutive operations of the host.
        sent_bytes: bytes of the arrays sent from IPU to host.
        returned_bytes: bytes of the arrays returned from host to IPU.
    """

    name: str
    work: tuple[Work, ...] = ()
    sent_bytes: int = 0
    returned_bytes: int = 0
