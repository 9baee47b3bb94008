"""Choose short, unique names for a program's layers and stages."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Final

from ipusim.api import layers, timelines
from ipusim.base.errors import IpusimError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.programs.chain import scoped_names

#: Characters that a scenario's name cannot have.
_ILLEGAL_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
#: Maximum length of a scenario's name.
_MAX_CHARACTERS: Final = 64
#: Number that a framework appends to a default name.
_TRAILING_NUMBER: Final = re.compile(r"_\d+$")


def short_names(names: Sequence[str], frameworks: Collection[str] = ()) -> tuple[str, ...]:
    """Return a unique short name per scoped layer name, without the default names in ``frameworks``.

    A short name is the innermost scope, preceded by outer scopes until the name is unique. Remaining equal names get a
    number.

    >>> short_names(["FCModel/dense256/dense", "FCModel/logits/dense_1", "a/relu", "b/relu"], ["dense"])
    ('dense256', 'logits', 'a_relu', 'b_relu')
    """
    parts = _parts(names, frameworks)
    result: list[str] = []
    for path in parts:
        depths = [depth for depth in range(1, len(path)) if sum(part[-depth:] == path[-depth:] for part in parts) == 1]
        name = plain_name("_".join(path[-depths[0] :] if depths else path), "layer")
        unique_name, number = name, 0
        while unique_name in result:
            number += 1
            unique_name = f"{name[: _MAX_CHARACTERS - 5]}_{number}"
        result.append(unique_name)
    return tuple(result)


def plain_name(text: str, instead: str) -> str:
    """Return a text as a legal scenario name; ``instead`` is the prefix for texts that start illegally."""
    name = _ILLEGAL_CHARACTERS.sub("_", text).strip("_-")
    return (name if name and not name[0].isdigit() else f"{instead}{name}")[:_MAX_CHARACTERS]


def _parts(names: Sequence[str], frameworks: Collection[str]) -> list[list[str]]:
    """Return scopes and name of every layer, without a default name if the scopes alone are unique."""
    parts = [[part for part in name.split("/") if part] for name in names]
    scopes = [path[:-1] for path in parts]
    return [
        path[:-1]
        if path[:-1] and _TRAILING_NUMBER.sub("", path[-1]) in frameworks and scopes.count(path[:-1]) == 1
        else path
        for path in parts
    ]


def scopes_of(functions: StepFunctions) -> tuple[str, ...]:
    """Return the layers of stages as texts, with scopes of variables outside layers."""
    try:
        stages = functions.observed
    except IpusimError:  # missing names are no reason to refuse a program that has run
        return ()
    result = short_names_of([scoped_names(functions.step.graph, stage) for stage in stages])
    return tuple(map(timelines.layers_text, result)) if any(result) else ()


def short_names_of(scoped: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return short names of layers, stage by stage."""
    default_name = import_module("tf_keras.src.utils.generic_utils").to_snake_case
    defaults = {default_name(name) for name in dir(load().keras.layers) if name[0].isupper()}
    defaults |= {row.kind for row in layers.rows()}
    names = iter(short_names([name for stage in scoped for name in stage], defaults))
    return tuple(tuple(next(names) for _ in stage) for stage in scoped)
