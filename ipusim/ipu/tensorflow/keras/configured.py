"""Objects that tell the arguments they were made with, as Keras' ``get_config``, and are made of them again."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


class Configured:
    """Base of what is made anew from its arguments alone."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Remember the arguments."""
        made = super().__new__(cls)
        object.__setattr__(made, "_made_with", (args, kwargs))  # some are frozen
        return made

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by their names, defaults included."""
        args, kwargs = self._made_with  # type: ignore[attr-defined]
        bound = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *given = bound.arguments.items()
        found: dict[str, Any] = {}
        for name, value in given:
            of_kind = bound.signature.parameters[name].kind
            found |= value if of_kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return found

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return one of these arguments; raises as making one does."""
        return cls(**config)
