"""Convert a request's options of stages to options of the model."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ipusim.model.profile import StageProfile
from ipusim.model.stages.stage_options import PARTIALS_BYTES, PlanOptions, StageOptions, with_options
from ipusim.pipeline.rules import check_stage_options
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.pipeline_spec import StageOptionsSpec
from ipusim.runs.request.schema import Options
from ipusim.runs.request.system_spec import PoplarOptionsSpec

#: Options with an item for each stage.
_LISTS: Final = "forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"
#: Paths of all options for the operations of stages.
_KEYS: Final[tuple[KeyPath, ...]] = tuple(("pipeline", name) for name in (*_LISTS, "weight_update_poplar_options"))


def check_options(options: Options, stages: int, has_operations: bool, findings: Findings) -> None:
    """Record option lists of wrong length, and options for stages with given cycles."""
    if not has_operations:
        for path in filter(findings.is_set, _KEYS):
            text = "expected no options of operations in stages with given cycles, got options: leave them out"
            findings.add(path, text)
    for name in _LISTS:
        values = getattr(options.pipeline, name)
        if values is not None:
            findings.attempt(("pipeline", name), check_stage_options, name, len(values), stages)


def apply_options(options: Options, profiles: tuple[StageProfile, ...], shape: PlanShape) -> tuple[StageProfile, ...]:
    """Return ``profiles`` with products planned under the given options; concurrent stages share options."""
    system, pipeline = options.system, options.pipeline
    general = StageOptions(
        _plan_options(system.matmuls.poplar_options), _plan_options(system.convolutions.poplar_options)
    )
    defaults = [StageOptionsSpec()] * shape.positions
    forward = pipeline.forward_propagation_stages_poplar_options or defaults
    backward = pipeline.backward_propagation_stages_poplar_options or defaults
    update = _options(pipeline.weight_update_poplar_options).fill_up(general)
    return tuple(
        with_options(
            profile, _options(forward[position]).fill_up(general), _options(backward[position]).fill_up(general), update
        )
        for profile, position in zip(profiles, shape.position_of, strict=True)
    )


def _options(spec: StageOptionsSpec) -> StageOptions:
    return StageOptions(_plan_options(spec.matmul_options), _plan_options(spec.convolution_options))


def _plan_options(spec: PoplarOptionsSpec) -> PlanOptions:
    share, partials = spec.availableMemoryProportion, spec.partialsType
    return PlanOptions(
        None if share is None else Fraction(str(share)),
        None if partials is None else PARTIALS_BYTES[partials],
    )
