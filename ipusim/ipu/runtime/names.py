"""Names that a program leaves to its framework: scopes of variables, and a number for each layer of a kind.

A stage's function runs once for every micro-batch. Each time its layers, models and variables must be called the same,
and otherwise than those of the stages before it: so a stage begins to count where the one before it ended, and the
first one with the models that have been made outside of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.ipu.runtime.context import Scoped


@dataclass(frozen=True)
class Scope:
    """Where names are made.

    Attributes:
        prefix: what names in it begin with: empty, or the names of the scopes around, each with a slash.
        reuse: whether a variable must be new (False), must be there (True), or may be either (None).
        getters: functions that get_variable calls with what gives a variable, the outermost scope's first.
        initializer, dtype: of variables that do not say theirs; None for Glorot's and float32.
    """

    prefix: str = ""
    reuse: bool | None = False
    getters: tuple[Callable[..., Any], ...] = ()
    initializer: Any = None
    dtype: Any = None


@dataclass
class Counts:
    """The names in use so far.

    Attributes:
        uses: how often each name was asked for, by name.
        layers: the layers so far, which seed their initial parameters.
        variables: names of the variables so far.
        owners: the layer of each name.
        parts: what had been named at the end of each part of a branch or loop, by the name of that, when the stage was
            tried; all copies have the same.
    """

    uses: dict[str, int] = field(default_factory=dict)
    layers: int = 0
    variables: set[str] = field(default_factory=set)
    owners: dict[str, object] = field(default_factory=dict)
    parts: dict[str, tuple[Counts, ...]] = field(default_factory=dict)

    def copy(self) -> Counts:
        """Return counts that go on from these by themselves."""
        return Counts(dict(self.uses), self.layers, set(self.variables), dict(self.owners), self.parts)

    def go_on_from(self, other: Counts) -> None:
        """Count on from others."""
        vars(self).update(vars(other.copy()))


#: The scope that the caller is in.
scope: Final = Scoped("scope", Scope())
#: Sets the scope in which the block makes names.
inside: Final = scope.set_to
#: Whether the program of the running stage trains; outside of stages True.
program_trains: Final = Scoped("trains", True)
#: How many replicas batch normalisations of the running stage take their statistics of, together.
statistics_group: Final = Scoped("group", 1)
#: The names in use so far in the running stage; None outside of stages.
_COUNTS: Final[Scoped[Counts | None]] = Scoped("counts", None)
#: What has been named outside of stages, in a graph of the program's own; None elsewhere.
_OF_GRAPH: Final[Scoped[Counts | None]] = Scoped("counts_of_graph", None)
#: Sets the counts of names that the block gives outside of stages.
counting_outside: Final = _OF_GRAPH.set_to
#: How many models of each kind have been made outside of stages, in the caller's thread or task.
_MODELS: Final[ContextVar[dict[str, int] | None]] = ContextVar("models", default=None)


def counts() -> Counts:
    """Return the names in use so far in the running stage, or in the surrounding graph; elsewhere none are counted."""
    return _COUNTS() or _OF_GRAPH() or Counts()


def in_stage() -> bool:
    """Tell whether a stage of a program is running."""
    return _COUNTS() is not None


def unique(name: str) -> str:
    """Return ``name`` the first time, and then with a number behind it, as Keras names layers."""
    return _numbered(name, counts().uses)


def model_name(kind: str) -> str:
    """Return the name of a model that was given none, as :func:`unique` does; outside of stages models are counted."""
    if in_stage():
        return unique(kind)
    uses = dict(_MODELS.get() or {})
    _MODELS.set(uses)
    return _numbered(kind, uses)


def forget_models() -> None:
    """Count the models outside of stages anew."""
    _MODELS.set(None)


def _numbered(name: str, uses: dict[str, int]) -> str:
    uses[name] = uses.get(name, 0) + 1
    return name if uses[name] == 1 else f"{name}_{uses[name] - 1}"


class ProgramNames:
    """Names in the stages of one program, made in the scope in which the program was.

    Attributes:
        group: the replicas that batch normalisations take their statistics of, together.
    """

    def __init__(self, trains: bool = True, group: int = 1) -> None:
        """Begin to count at the first stage; layers ask whether the program ``trains``, and for its ``group``."""
        self._trains, self.group = trains, group
        self._scope = scope()
        self._starts = [Counts(uses=dict(_MODELS.get() or {}))]

    @contextmanager
    def stage(self, number: int) -> Iterator[None]:
        """Name what runs in the block as of stage ``number``; the first time stages come in their order."""
        stored = self._starts[number].copy()
        trains, group = program_trains.set_to(self._trains), statistics_group.set_to(self.group)
        with _COUNTS.set_to(stored), trains, group, inside(self._scope):
            yield
        if len(self._starts) == number + 1:
            self._starts.append(stored)
