"""What the modules here offer in TensorFlow's place, each name found when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

from ipusim.errors import MissingNameError
from ipusim.near_names import did_you_mean

#: Names of a module that a message lists at most; of more, the nearest one and the page of all names are said.
_LISTED: Final = 12


def found_in(home: str, names: str) -> dict[str, str]:
    """Return the names of a text, each with the module ``home`` that it is in under this name."""
    return {name: f"{home}:{name}" for name in names.split()}


def offering(module: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of TensorFlow's ``module``, which offers ``names``.

    Each name stands with the module that it is in, or the whole of which it is, and behind a colon its name there.
    """

    @cache  # a program may ask for each sample
    def find(name: str) -> Any:
        if name == "__path__":  # so that `import` looks for the modules below this one, which the finder knows
            return []
        if name not in names:
            lack(module, name, list(names))
        home, _, attribute = names[name].partition(":")
        found = import_module(home)
        return getattr(found, attribute) if attribute else found

    return find, lambda: sorted(names)


def lack(module: str, name: str, known: list[str]) -> NoReturn:
    """Raise MissingNameError for a name of TensorFlow's that is not offered."""
    if name.startswith("__"):  # asked for by Python itself
        raise AttributeError(name)
    few = f", in {module} {', '.join(sorted(known))}" if len(known) <= _LISTED else ""
    raise MissingNameError(
        f"{module}.{name} is not simulated{did_you_mean(name, known)}: ipusim.ipu.tensorflow offers what programs of "
        f"pipelines use{few}; reports/graphcore_api.md lists all names"
    )
