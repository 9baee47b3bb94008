"""The place where the operations of a stage run: on its IPU, or within a scope on the host."""

from __future__ import annotations

from ipusim.base.errors import ModelError
from ipusim.model.functions.surrounded import Surrounded, surroundings


def on_host(name: str) -> Surrounded:
    """Return a block whose operations run on the host; inside of another one it is a part of that."""
    return Surrounded(scope=surroundings().scope or name)


def check_on_ipu(what: str, instead: str) -> None:
    """Refuse ``what`` on the host; raises ModelError, which says what to do ``instead``."""
    if (scope := surroundings().scope) is not None:
        raise ModelError(f"{what} in scope {scope!r}, whose operations run on the host: {instead}")
