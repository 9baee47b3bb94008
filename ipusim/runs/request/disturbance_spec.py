"""Define the keys of a scenario's disturbances; a key such as ``slower`` names the kind of disturbance."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from ipusim.base.near_names import nearest
from ipusim.model.rows import classes, row_of
from ipusim.runs.problems import one_of
from ipusim.runs.request.derived import RowSpec, keys_of
from ipusim.runs.request.fields import expects, kind_of
from ipusim.runs.request.kinds import OneOfKinds

#: Class of each kind of disturbance.
_KINDS: Final[dict[str, Any]] = {row_class.kind: row_class for row_class in classes(["ipusim.hardware.disturbances"])}


def _tag_of(value: object) -> str | None:
    """Return a disturbance's tag by the key of its kind. A misspelt key is also accepted; a later check refuses it."""
    if not isinstance(value, dict):
        return kind_of(value)
    all_keys = {key.name for row in KINDS.values() for key in row.keys}
    kinds = [kind for kind in _KINDS if kind in value]
    kinds += filter(None, (nearest(key, _KINDS) for key in value if key not in all_keys))
    return f"<{kinds[0]}>" if kinds else kind_of(value)


@cache
def _models() -> dict[str, Callable[[], type[RowSpec]]]:
    return {f"<{kind}>": partial(keys_of, row_class) for kind, row_class in _KINDS.items()}


if TYPE_CHECKING:
    DisturbanceSpec = RowSpec
else:
    #: Deviation from the rates.
    DisturbanceSpec = Annotated[
        Any,
        OneOfKinds(_tag_of, _models),
        Field(
            json_schema_extra=expects(
                f"a disturbance, which has a key out of {one_of(_KINDS)}, such as {{ipu: 2, slower: 1.5}}"
            )
        ),
    ]
#: Kinds of disturbance in order, by their discriminating key.
KINDS: Final = {kind: row_of(row_class) for kind, row_class in _KINDS.items()}
