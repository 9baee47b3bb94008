"""Where the operations of a stage's function run: on its IPU, or within a scope on the host."""

from __future__ import annotations

from ipusim.base.errors import ModelError
from ipusim.model.functions.surrounded import HostScope, Surrounded, surroundings


def on_host(name: str) -> Surrounded:
    """Return a block whose operations run on the host; inside of another one it is a part of that.

    Raises ModelError in what runs on the IPU alone.
    """
    now = surroundings()
    if now.ipu_alone:
        raise ModelError(
            f"scope {name!r}, whose operations run on the host, in {now.ipu_alone}, which runs on the IPU alone"
        )
    return Surrounded(scope=now.scope or HostScope(name))


def check_on_ipu(what: str, instead: str) -> None:
    """Refuse ``what`` on the host; raises ModelError, which says what to do ``instead``."""
    here = surroundings().scope
    if here is not None:
        raise ModelError(f"{what} in scope {here.name!r}, whose operations run on the host: {instead}")
