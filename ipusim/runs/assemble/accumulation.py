"""From the accumulators' type in a request to that of each parameter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ipusim.model.stages.stage import LayerStage
from ipusim.near_names import did_you_mean
from ipusim.runs.findings import Findings
from ipusim.runs.request.schema import Options


def accumulator_dtype(options: Options) -> Callable[[str], np.dtype[np.floating]]:
    """Return the function from a parameter's name (``layer/W``) to the type of its accumulator.

    Of several names that fit, the longest holds: a parameter's own before its layer's.
    """
    chosen = options.pipeline.gradient_accumulation_dtype
    if not isinstance(chosen, dict):
        everywhere = np.dtype(chosen or options.precision)
        return lambda name: everywhere  # noqa: ARG005

    def of(name: str) -> np.dtype[np.floating]:
        fitting = [key for key in chosen if name == key or name.startswith(f"{key}/")]
        return np.dtype(chosen[max(fitting, key=len)] if fitting else options.precision)

    return of


def check_accumulators(options: Options, stages: tuple[LayerStage, ...], findings: Findings) -> None:
    """Note names that no parameter has, nor a layer with any."""
    chosen = options.pipeline.gradient_accumulation_dtype
    if not isinstance(chosen, dict):
        return
    names = [name for stage in stages for name in stage.parameter_names]
    for key in chosen:
        if not any(name == key or name.startswith(f"{key}/") for name in names):
            path = ("pipeline", "gradient_accumulation_dtype", key)
            near = did_you_mean(key, [*names, *(name.split("/")[0] for name in names)])
            findings.add(path, f"expected a layer with parameters, or one of these, got {key!r}{near}")
