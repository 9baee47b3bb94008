"""The slots of optimizers: the arrays that a rule keeps beside each variable, under TensorFlow's names."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.optimizers.variable import Variable
from ipusim.model.learning import adaptive_optimizers, optimizers

#: The names of a rule's slots; that of a rule which keeps one array stands for the variable's own name in the state.
_NAMES: Final = {
    optimizers.SGD: (),
    optimizers.Momentum: ("momentum",),
    adaptive_optimizers.Adam: ("m", "v"),
    adaptive_optimizers.LAMB: ("m", "v"),
}


def slot_names(rule: optimizers.Optimizer) -> list[str]:
    """Return the names of a rule's slots in alphabetical order; none of a rule that says none."""
    names: tuple[str, ...] = _NAMES.get(type(rule), getattr(rule, "slots", ()))
    return sorted(names)


def slot_of(rule: optimizers.Optimizer, variable: Variable, slot: str) -> Variable | None:
    """Return a slot of a variable as a variable; None where there is none of that name."""
    key = variable.name if isinstance(rule, optimizers.Momentum) else f"{variable.name}/{slot}"
    if slot not in slot_names(rule) or key not in variable.state:
        return None
    return Variable(f"{variable.name}/{slot}", variable.state[key], variable.state)
