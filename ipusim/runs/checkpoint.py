"""The state of a session as arrays by name, to be saved, and to be set again in another session of the network.

A name does not depend on how the network is split: a variable has its own, an array of the optimizer that of its
variable behind ``optimizer/``. What an optimizer keeps for a whole stage, such as its count of updates, stands for each
variable of the stage. What another replica than the first has for itself has that in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from ipusim.base.errors import FileError
from ipusim.base.units import enumerated
from ipusim.model.layers.layer import Array
from ipusim.runs.session import Session, SessionState

__all__ = [
    "OPTIMIZER",
    "Arrays",
    "NameFilter",
    "arrays_of",
    "check_arrays",
    "check_arrays_of",
    "everything",
    "is_own",
    "is_variable",
    "set_arrays_of",
    "slot_names",
    "slots_of",
]

Arrays = Mapping[str, Array]
#: Whether an array of a name is wanted.
NameFilter = Callable[[str], bool]

#: What names begin with that are none of variables.
OPTIMIZER: Final = "optimizer/"
_OWN: Final = "ipusim/"
_EXECUTIONS: Final = "ipusim/executions"
#: Names that a message lists.
_LISTED: Final = 8


def arrays_of(session: Session) -> dict[str, Array]:
    """Return copies of all that a session goes on from, by name."""
    state = session.state()
    arrays = dict(state.variables)
    for stage, slots in zip(session.stages if state.slots else (), state.slots, strict=True):
        for key, array in slots.items():
            arrays |= dict.fromkeys(slot_names(stage, key), array)
    for replica, values in enumerate(state.untrained):
        for name, array in values.items():
            if name not in arrays:
                arrays[name] = array
            elif array.tobytes() != arrays[name].tobytes():  # bit by bit, as what is no number differs from itself
                arrays[_of_replica(replica, name)] = array
    return arrays | {_EXECUTIONS: np.array(state.executions or 0)}


def everything(_: str) -> bool:
    """Choose every name."""
    return True


def check_arrays_of(session: Session, arrays: Arrays, chosen: NameFilter = everything) -> None:
    """Refuse arrays that a session cannot go on from; raises FileError as :func:`check_arrays` does."""
    own = arrays_of(session)
    check_arrays({name: array for name, array in own.items() if chosen(name) and not is_own(name)}, arrays)


def set_arrays_of(session: Session, arrays: Arrays, chosen: NameFilter = everything) -> None:
    """Let a session go on from ``arrays`` of one of the same network, or only from those whose names are ``chosen``.

    Names that this session has no use for are left alone. Raises FileError, before anything is set, for arrays that
    are missing, or have other shapes or types.
    """
    check_arrays_of(session, arrays, chosen)
    before = session.state()
    session.set_state(
        SessionState(
            {name: arrays[name] for name in before.variables if chosen(name)},
            tuple(_slots(session.stages, before.slots, arrays, chosen)) if before.slots else (),
            tuple(
                {name: arrays.get(_of_replica(replica, name), arrays[name]) for name in values if chosen(name)}
                for replica, values in enumerate(before.untrained)
            ),
            int(arrays[_EXECUTIONS]) if _EXECUTIONS in arrays and chosen(_EXECUTIONS) else None,
        )
    )


def is_variable(name: str) -> bool:
    """Tell whether an array is a variable, and neither one of the optimizer nor a replica's own."""
    return not name.startswith((OPTIMIZER, _OWN))


def is_own(name: str) -> bool:
    """Tell whether an array is neither a variable nor of an optimizer, but a run's or a replica's own."""
    return name.startswith(_OWN)


def check_arrays(expected: Arrays, arrays: Arrays) -> None:
    """Refuse arrays that lack some of those ``expected``, or have them in another form; raises FileError."""
    missing = [name for name in expected if name not in arrays]
    differences = [
        f"{name!r} is {_form(arrays[name])} in it and {_form(array)} here"
        for name, array in expected.items()
        if name in arrays and _form(array) != _form(arrays[name])
    ]
    problems = differences[:_LISTED]
    if len(differences) > _LISTED:
        problems.append(f"{len(differences) - _LISTED} more differ")
    if missing:
        beyond = [name for name in arrays if name not in expected and not is_own(name)]
        problems.insert(0, f"it lacks {_names(missing)}" + (f", and holds {_names(beyond)}" if beyond else ""))
    if problems:
        raise FileError(f"of another model: {'; '.join(problems)}")


def slot_names(stage: Sequence[str], key: str) -> list[str]:
    """Return the names of an optimizer's array, which belongs to one variable of a stage or to the whole stage."""
    if any(key == name or key.startswith(f"{name}/") for name in stage):
        return [f"{OPTIMIZER}{key}"]
    return [f"{OPTIMIZER}{name}/{key}" for name in stage]


def slots_of(variable: str, arrays: Arrays, chosen: NameFilter = everything) -> dict[str, Array]:
    """Return an optimizer's slots of a variable by name, out of the expected arrays."""
    begin = f"{OPTIMIZER}{variable}"
    return {
        name: array
        for name, array in arrays.items()
        if (name == begin or name.startswith(f"{begin}/")) and chosen(name)
    }


def _slots(
    stages: Sequence[Sequence[str]], slots_of_stages: Sequence[Arrays], arrays: Arrays, chosen: NameFilter
) -> Iterator[dict[str, Array]]:
    """Return the optimizer's arrays of each stage: its own slots, and those of its variables."""
    seen: set[str] = set()
    for stage, slots in zip(stages, slots_of_stages, strict=True):
        own = [name for name in stage if name not in seen]
        seen.update(stage)
        own_slots = {key: arrays[names[0]] for key in slots if (names := slot_names(stage, key)) and chosen(names[0])}
        in_slots = {name for key in slots for name in slot_names(stage, key)}
        begins = tuple(f"{OPTIMIZER}{name}/" for name in own)
        more = [name for name in arrays if begins and name.startswith(begins) and name not in in_slots and chosen(name)]
        yield own_slots | {name.removeprefix(OPTIMIZER): arrays[name] for name in more}


def _of_replica(replica: int, name: str) -> str:
    return f"{_OWN}replica {replica}/{name}"


def _names(names: Sequence[str]) -> str:
    return enumerated(map(repr, names), _LISTED)


def _form(array: Array) -> str:
    return f"{array.dtype.name} of {array.shape}"
