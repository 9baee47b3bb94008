"""What a checkpoint holds: all that the programs compiled in a context go on from, and the variables on its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.run import Pipeline
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import store
from ipusim.model.layers.layer import Array
from ipusim.runs.checkpoint import Arrays, check_arrays, is_own

_OWN: Final = "ipusim/"


def everything(name: str) -> bool:
    """Want all that there is."""
    return True


def state_now(wanted: Callable[[str], bool] = everything) -> dict[str, Array]:
    """Return copies of all that is ``wanted`` by name; of two programs that have a variable, the one that trains it."""
    found: dict[str, Array] = {}
    for number, program in _programs():
        arrays = {_named(number, name): array for name, array in program.arrays().items()}
        found = found | arrays if program.plan.shape.training else arrays | found
    found |= {name: each.value_now() for name, each in _of_the_host().items()}
    return {name: array for name, array in found.items() if wanted(name)}


def go_on_from(arrays: Arrays, wanted: Callable[[str], bool] = everything) -> None:
    """Set all that is ``wanted``; raises as Pipeline.set_arrays does."""
    others = {name: each for name, each in _of_the_host().items() if wanted(name)}
    check_arrays({name: each.initial for name, each in others.items()}, arrays)
    for number, program in _programs():
        mine = {name: array for name, array in arrays.items() if not is_own(name)}
        own = {name: array for name, array in program.arrays().items() if is_own(name)}
        program.set_arrays(
            mine | {name: arrays[_named(number, name)] for name in own if _named(number, name) in arrays}, wanted
        )
    for name, each in others.items():
        each.set(arrays[name])


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
    return name.replace(_OWN, f"{_OWN}program {number}/", 1) if number and is_own(name) else name
