"""What a checkpoint holds: all that the programs compiled in a context go on from, and the variables on its host."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.run import Pipeline
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import store
from ipusim.model.layers.layer import Array
from ipusim.runs.checkpoint import Arrays, Wanted, check_arrays, everything, is_own

#: What begins the names of what is a program's own: of the first that was compiled, and of others.
_OWN: Final = "ipusim/"
_PROGRAM: Final = "ipusim/program "


def state_now(wanted: Wanted = everything) -> dict[str, Array]:
    """Return copies of all that is ``wanted`` by name; of two programs that have a variable, the one that trains it."""
    found: dict[str, Array] = {}
    for number, program in _programs():
        arrays = {_named(number, name): array for name, array in program.arrays().items()}
        found = found | arrays if program.plan.shape.training else arrays | found
    found |= {name: each.value_now() for name, each in _of_the_host().items()}
    return {name: array for name, array in found.items() if wanted(name)}


def go_on_from(arrays: Arrays, wanted: Wanted = everything) -> None:
    """Set all that is ``wanted``; raises as Pipeline.set_arrays does, before anything is set."""
    others = {name: each for name, each in _of_the_host().items() if wanted(name)}
    check_arrays({name: each.initial for name, each in others.items()}, arrays)
    given = [(program, _given(number, arrays)) for number, program in _programs()]
    for program, own in given:
        program.check_arrays(own, wanted)
    for program, own in given:
        program.set_arrays(own, wanted)
    for name, each in others.items():
        each.set(arrays[name])


def _given(number: int, arrays: Arrays) -> dict[str, Array]:
    """Return the arrays of a program by the names that it has for them."""
    begin = _begin(number)
    found = {name: array for name, array in arrays.items() if not is_own(name)}
    own = [name for name in arrays if name.startswith(begin) and (number or not name.startswith(_PROGRAM))]
    return found | {name.replace(begin, _OWN, 1): arrays[name] for name in own}


def has_variables() -> bool:
    """Tell whether there is anything to save."""
    return bool(_programs() or store().variables)


def _programs() -> list[tuple[int, Pipeline]]:
    return list(enumerate(each for each in compiled() if isinstance(each, Pipeline)))


def _of_the_host() -> dict[str, NamedVariable]:
    """Return the variables that are in no program, by name."""
    used = {name for _, program in _programs() for name in program.variables}
    return {each.name: each for each in store().variables if each.name not in used}


def _named(number: int, name: str) -> str:
    """Return a name that no other program has for what is a program's own."""
    return name.replace(_OWN, _begin(number), 1) if is_own(name) else name


def _begin(number: int) -> str:
    return f"{_PROGRAM}{number}/" if number else _OWN
