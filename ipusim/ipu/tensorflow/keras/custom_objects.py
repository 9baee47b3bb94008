"""Classes and functions of a program's own, by the names under which saved models have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ipusim.ipu import checks
from ipusim.ipu.remembered import Remembered

#: Those of the blocks that the caller is in.
_IN_SCOPE: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("custom_objects", default=None)
#: Those that the program has registered.
_REGISTERED: Final[Remembered[Mapping[str, Any]]] = Remembered("registered", {})


def custom_objects() -> dict[str, Any]:
    """Return all that are known here, by name."""
    return {**_REGISTERED.get(), **(_IN_SCOPE.get() or {})}


@contextmanager
def custom_object_scope(*objects: Mapping[str, Any] | None) -> Iterator[None]:
    """Know these in the block too; raises ProgramTypeError for what is no dictionary by names."""
    found = dict(_IN_SCOPE.get() or {})
    for each in objects:
        if each is not None and not (isinstance(each, Mapping) and all(isinstance(name, str) for name in each)):
            checks.wrong_type("custom_objects", "a dictionary of classes and functions by their names", each)
        found |= each or {}
    token = _IN_SCOPE.set(found)
    try:
        yield
    finally:
        _IN_SCOPE.reset(token)


def register_keras_serializable(package: str = "Custom", name: str | None = None) -> Callable[[Any], Any]:
    """Return a decorator of a class or function, which models that are loaded then know as ``package>name``."""
    checks.text("package", package)

    def register(given: Any) -> Any:
        own = f"{package}>{given.__name__ if name is None else checks.text('name', name)}"
        _REGISTERED.set({**_REGISTERED.get(), own: given})
        return given

    return register


def registered_name(given: Any) -> str:
    """Return the name under which a class or function is known when it is loaded: as registered, or its own."""
    return next((name for name, each in _REGISTERED.get().items() if each is given), str(given.__name__))
