"""From the accumulators' type in a request to that of each parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.base.near_names import did_you_mean
from ipusim.model.stages.stage import LayerStage
from ipusim.runs.findings import Findings
from ipusim.runs.request.schema import Options


@dataclass(frozen=True)
class AccumulatorTypes:
    """The type of each parameter's gradient accumulator.

    Attributes:
        otherwise: of parameters that are not named.
        named: of parameters (``layer/W``), and of all those of a layer.
    """

    otherwise: np.dtype[Any]
    named: tuple[tuple[str, np.dtype[Any]], ...] = ()

    def __call__(self, name: str) -> np.dtype[Any]:
        """Return the type of a parameter, ``layer/W``; the longest name that fits holds: its own before its layer's."""
        fitting = [entry for entry in self.named if name == entry[0] or name.startswith(f"{entry[0]}/")]
        return max(fitting, key=lambda entry: len(entry[0]))[1] if fitting else self.otherwise


def accumulator_types(options: Options) -> AccumulatorTypes:
    """Return the types of the accumulators that ``options`` ask for."""
    chosen = options.pipeline.gradient_accumulation_dtype
    if not isinstance(chosen, dict):
        return AccumulatorTypes(np.dtype(chosen or options.precision))
    named = tuple((name, np.dtype(dtype)) for name, dtype in chosen.items())
    return AccumulatorTypes(np.dtype(options.precision), named)


def check_accumulators(options: Options, stages: tuple[LayerStage, ...], findings: Findings) -> None:
    """Note names of no parameter and of no layer with parameters."""
    chosen = options.pipeline.gradient_accumulation_dtype
    if not isinstance(chosen, dict):
        return
    names = [name for stage in stages for name in stage.parameter_names]
    for key in chosen:
        if not any(name == key or name.startswith(f"{key}/") for name in names):
            path = ("pipeline", "gradient_accumulation_dtype", key)
            near = did_you_mean(key, [*names, *(name.split("/")[0] for name in names)])
            findings.add(path, f"expected a layer with parameters, or one of these, got {key!r}{near}")
