"""Where the operations of a stage's function run: on its IPU, or within a scope on the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from ipusim.base.errors import ModelError


@dataclass(frozen=True, eq=False)
class HostScope:
    """One block whose operations run on the host, whether it is gone through once or call by call.

    Attributes:
        name: as the user calls it.
    """

    name: str


_SCOPE: Final[ContextVar[HostScope | None]] = ContextVar("outside_scope", default=None)
#: What runs, where that has no scopes.
_ALONE: Final[ContextVar[str]] = ContextVar("alone", default="")


def scope() -> HostScope | None:
    """Return the scope that the caller's operations run in, None on the IPU."""
    return _SCOPE.get()


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Run the operations of the block on the host; a block inside of another one is a part of it.

    Raises ModelError in what runs on the IPU alone.
    """
    if what := _ALONE.get():
        raise ModelError(f"scope {name!r}, whose operations run on the host, in {what}, which runs on the IPU alone")
    with within(_SCOPE.get() or HostScope(name)):
        yield


@contextmanager
def within(where: HostScope | None) -> Iterator[None]:
    """Run operations where others have run: in a scope that there was before, or on the IPU."""
    token = _SCOPE.set(where)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def on_ipu_alone(what: str) -> Iterator[None]:
    """Refuse scopes in the block, as what it does for ``what`` is priced as a whole."""
    token = _ALONE.set(what)
    try:
        yield
    finally:
        _ALONE.reset(token)


def check_on_ipu(what: str, instead: str) -> None:
    """Refuse ``what`` on the host; raises ModelError, which says what to do ``instead``."""
    here = _SCOPE.get()
    if here is not None:
        raise ModelError(f"{what} in scope {here.name!r}, whose operations run on the host: {instead}")
