"""Writes the table of TensorFlow's values and gradients, tensorflow_values.json.

Run by hand where TensorFlow is installed, which is no dependency of ipusim and never in its environment:

    python -m venv /tmp/tensorflow && /tmp/tensorflow/bin/pip install "tensorflow==2.15.1"
    /tmp/tensorflow/bin/python tests/golden/write_tensorflow_values.py

The cases, and what differs from Graphcore's older releases, stand in tensorflow_cases.py.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow

sys.path.insert(0, str(Path(__file__).parent))
from tensorflow_cases import (
    BEGIN,
    CASES,
    OPTIMIZERS,
    TRAININGS,
    Case,
    described,
    trained,
    weights,
    weights_after_updates,
)

TABLE = Path(__file__).with_name("tensorflow_values.json")
FIRST = tensorflow.compat.v1


class Names:
    """Modules in one another's place: the first that has a name gives it, unless it is said."""

    def __init__(self, *modules: Any, **said: Any) -> None:
        self._modules, self._said = modules, said

    def __getattr__(self, name: str) -> Any:
        if name in self._said:
            return self._said[name]
        return getattr(next(each for each in self._modules if hasattr(each, name)), name)


KERAS = tensorflow.keras
INSTANCES = partial(KERAS.layers.GroupNormalization, groups=-1)  # a group for each channel
TF = Names(
    tensorflow,
    FIRST,
    nn=Names(tensorflow.nn, FIRST.nn),
    losses=FIRST.losses,
    layers=FIRST.layers,
    train=FIRST.train,
    keras=Names(
        KERAS,
        layers=Names(KERAS.layers, InstanceNormalization=INSTANCES),
        optimizers=Names(KERAS.optimizers.legacy, KERAS.optimizers),
    ),
)


def row(case: Case) -> dict[str, Any]:
    """Return the results of a case and their gradients by its floating-point arrays."""
    arrays = [tensorflow.constant(each) for each in case.arrays]
    watched = [each for each in arrays if each.dtype.is_floating]
    with tensorflow.GradientTape() as tape:
        tape.watch(watched)
        given = case.function(TF, *arrays)
        results = [
            tensorflow.convert_to_tensor(each) for each in (given if isinstance(given, list | tuple) else [given])
        ]
        weighted = [each * weights(each.shape).astype(each.dtype.name) for each in results if each.dtype.is_floating]
        total = tensorflow.add_n([tensorflow.reduce_sum(each) for each in weighted]) if weighted else None
    gradients = [None] * len(watched) if total is None else tape.gradient(total, watched)
    return {
        "results": [described(each.numpy()) for each in results],
        "gradients": [
            None if each is None else described(tensorflow.convert_to_tensor(each).numpy()) for each in gradients
        ],
    }


def table() -> dict[str, dict[str, Any]]:
    """Return the parts of the table."""
    variable = partial(tensorflow.Variable, BEGIN)
    return {
        "cases": {name: row(case) for name, case in CASES.items()},
        "optimizers": {
            name: [described(each) for each in weights_after_updates(TF, name, variable())] for name in OPTIMIZERS
        },
        "trainings": {name: [described(each) for each in trained(TF, name)] for name in TRAININGS},
    }


def text(parts: dict[str, dict[str, Any]]) -> str:
    """Return the table as JSON, a line for each row."""
    sections = [
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in rows)
        + "\n}"
        for part, rows in parts.items()
    ]
    version = json.dumps({"tensorflow": tensorflow.__version__, "numpy": np.__version__})
    return f'{{\n"version": {version},\n' + ",\n".join(sections) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(text(table()))
