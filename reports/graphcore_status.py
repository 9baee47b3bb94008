"""What each name of Graphcore's API is here: works, taken without effect, refused, or not there yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from reports.graphcore_names import Name


class Status(Enum):
    """What a name or an argument is here; the value is the word of the page."""

    WORKS = "works"
    NO_EFFECT = "taken, without effect"
    REFUSED = "refused"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Said:
    """A status, and why, with which text, or what is different."""

    status: Status
    why: str = ""


_NO_OPERATIONS: Final = "there are no operations to name"
#: What is there and has no effect, or is refused, as far as the thing itself does not say it. An argument stands in
#: brackets behind its function or class; tests hold that what is refused is, with this text.
EXCEPTIONS: Final = {
    "ipu.pipelining_ops.pipeline(continuous_weight_updates)": Said(
        Status.REFUSED, "Continuous weight updates are currently not supported."
    ),
    "ipu.config.IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size": Said(
        Status.REFUSED,
        "norms.experimental.distributed_batch_norm_replica_group_size: expected 1, as the statistics of each replica "
        "are its own here, got 2",
    ),
    "ipu.config.IPUConfig.experimental.multi_replica_distribution.process_count": Said(
        Status.REFUSED,
        "experimental.multi_replica_distribution.process_count: expected 0 or 1, as one process runs all replicas of "
        "the device that auto_select_ipus asks for, got 2",
    ),
}
#: Functions and classes whose arguments stand in the order of another release too, found out from what is given.
IN_ANY_RELEASE: Final = frozenset({"ipu.pipelining_ops.pipeline"})


def said_of(name: Name) -> Said:
    """Return what a name is here."""
    here = name.here
    if here is None:
        return Said(Status.NOT_YET)
    if name.path in EXCEPTIONS:
        return EXCEPTIONS[name.path]
    if name.kind == "attribute" and here.without_effect:
        return Said(Status.NO_EFFECT, here.without_effect)
    difference = name.differences().get("")
    return Said(Status.NOT_YET, difference) if difference else Said(Status.WORKS)


def said_of_arguments(name: Name) -> dict[str, Said]:
    """Return what each argument of a name is here; of a name that is not there none is."""
    whole, different = said_of(name), name.differences() if name.here is not None else {}
    found = {}
    for argument in name.arguments:
        key = f"{name.path}({argument.name})"
        if whole.status is not Status.WORKS:
            found[argument.name] = Said(whole.status)
        elif argument.name in different and name.path not in IN_ANY_RELEASE:
            found[argument.name] = Said(Status.NOT_YET, different[argument.name])
        elif key in EXCEPTIONS:
            found[argument.name] = EXCEPTIONS[key]
        elif argument.name == "name" and argument.default == "None" and name.kind in ("function", "method"):
            found[argument.name] = Said(Status.NO_EFFECT, _NO_OPERATIONS)
        else:
            found[argument.name] = Said(Status.WORKS)
    return found
