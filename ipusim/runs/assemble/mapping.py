"""Convert a request's device mapping to each stage's IPU, including concurrent stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.base.errors import ProgramError
from ipusim.model.layers.parallel import Parallel
from ipusim.pipeline.grid import mapping_text
from ipusim.pipeline.rules import check_concurrent, check_mapping
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.layer_spec import BuiltSpec
from ipusim.runs.request.schema import Options
from ipusim.schedules.placement import V, zigzag
from ipusim.schedules.schedule import Schedule

#: Path of the option with the IPU of each stage.
MAPPING: Final[KeyPath] = ("pipeline", "device_mapping")


@dataclass(frozen=True)
class DeviceMapping:
    """IPUs of stages.

    Attributes:
        ipus: IPU of each stage, with concurrent stages side by side.
        sizes: number of stages in each position of the pipeline; empty without concurrent stages.
    """

    ipus: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    def path_of(self, stage: int) -> tuple[int, ...]:
        """Return the index path of a stage's IPU in the requested nested list.

        Raises IndexError for a stage out of range.
        """
        for position, size in enumerate(self.sizes or (1,) * len(self.ipus)):
            if stage < size:
                return (position,) if size == 1 else (position, stage)
            stage -= size
        raise IndexError(stage)

    @property
    def devices(self) -> tuple[int, ...]:
        """IPU of each position, -1 for concurrent stages. Graphcore's compiler places concurrent stages on all IPUs."""
        ipus = iter(self.ipus)
        parts = [[next(ipus) for _ in range(size)] for size in self.sizes] if self.sizes else [[ipu] for ipu in ipus]
        return tuple(part[0] if len(part) == 1 else -1 for part in parts)


def resolve_mapping(
    options: Options, schedule: Schedule, requests: tuple[RequestedStage, ...], findings: Findings
) -> DeviceMapping | None:
    """Return the IPUs of stages, given or default (:func:`_default_mapping`).

    None for a mapping that does not fit. The reason is recorded, with Graphcore's message if the rule is Graphcore's.
    """
    stages, problem_count = len(requests), len(findings)
    default = _default_mapping(options, schedule, requests, findings)
    mapping = options.pipeline.device_mapping if isinstance(options.pipeline.device_mapping, tuple) else default
    if len(findings) > problem_count:
        return None
    findings.attempt(MAPPING, check_mapping, len(mapping), stages)
    if len(findings) > problem_count:
        return None
    for position, (stage, ipus) in enumerate(zip(requests, mapping, strict=True)):
        with findings.collect((*MAPPING, position) if findings.is_set(MAPPING) else MAPPING):
            _check_ipus(stage, ipus)
    all_ipus = tuple(ipu for ipus in mapping for ipu in (ipus if isinstance(ipus, tuple) else (ipus,)))
    sizes = tuple(len(ipus) if isinstance(ipus, tuple) else 1 for ipus in mapping)
    cycles = options.pipeline.cycles
    if isinstance(cycles, tuple) and len(cycles) != len(all_ipus) and len(findings) == problem_count:
        text = f"expected the cycles of {len(all_ipus)} stages, got the cycles of {len(cycles)}"
        findings.add(("pipeline", "cycles"), text)
    if len(findings) > problem_count:
        return None
    return DeviceMapping(all_ipus, sizes if max(sizes) > 1 else ())


def _default_mapping(
    options: Options, schedule: Schedule, requests: tuple[RequestedStage, ...], findings: Findings
) -> tuple[int, ...]:
    """Return the IPUs of stages for a request without a list of IPUs; problems are recorded.

    The schedule, ``device_mapping: v`` or ``virtual_stages`` determines the IPUs. Batch serialization puts all stages
    on one IPU.
    """
    stages, pipeline = len(requests), options.pipeline
    if pipeline.virtual_stages is not None or pipeline.device_mapping == V:
        return _by_formula(options, schedule, requests, findings)
    if pipeline.device_mapping is not None:
        return (0,) * stages
    if schedule.written is not None and schedule.written.stages != stages:
        text = f"expected a pipeline of {schedule.written.stages} stages, as in {schedule.name}, got {stages}"
        findings.add(("pipeline", "schedule"), text)
    if pipeline.batch_serialization_iterations > 1:
        return (0,) * stages
    return findings.attempt(("pipeline", "schedule"), schedule.mapping, stages) or ()


def _by_formula(
    options: Options, schedule: Schedule, requests: tuple[RequestedStage, ...], findings: Findings
) -> tuple[int, ...]:
    """Return the IPUs of stages in a V (along the IPUs and back) or with virtual stages (several on each IPU).

    Problems are recorded. After a problem that leaves no mapping, the result is empty.
    """
    stages, choice, virtual = len(requests), options.pipeline.device_mapping, options.pipeline.virtual_stages
    path: KeyPath = MAPPING if virtual is None else ("pipeline", "virtual_stages")
    per_ipu = 2 if virtual is None else virtual
    if any(max(len(stage.concurrent), stage.functions) > 1 for stage in requests) or any(
        isinstance(ipus, tuple) for ipus in choice or ()
    ):
        expectation = (
            "no virtual stages with concurrent stages, got both"
            if virtual
            else "no concurrent stages in a V, got concurrent stages"
        )
        findings.add(path, f"expected {expectation}: give device_mapping")
        return ()
    if stages % per_ipu:
        text = (
            f"expected a number that divides the {stages} stages, got {per_ipu}"
            if virtual
            else (f"expected an even number of stages for a V, got {stages}")
        )
        findings.add(path, f"{text}; cut the model into {_multiples(stages, per_ipu)} stages, or leave it out")
        return ()
    mapping = zigzag(stages, per_ipu) if choice == V else schedule.mapping(stages, per_ipu)
    if isinstance(choice, tuple) and choice != mapping:
        text = f"expected a device_mapping of {_text(mapping)} with {per_ipu} virtual stages on each IPU"
        findings.add(path, f"{text}, got {_text(choice)}: leave one of the two out")
    elif schedule.written is not None and schedule.written.mapping != mapping:
        text = f"expected stages on IPUs {mapping_text(schedule.written)}, as in {schedule.name}"
        findings.add(path, f"{text}, got {_text(mapping)}: leave this key out")
    return mapping


def _multiples(stages: int, factor: int) -> str:
    """Return the multiples of ``several`` next to a number of stages, in words."""
    multiple = (stages // factor + 1) * factor
    return f"{multiple - factor} or {multiple}" if stages > factor else f"{multiple}"


def _text(mapping: tuple[int | tuple[int, ...], ...]) -> str:
    return ", ".join(map(str, mapping))


def _check_ipus(stage: RequestedStage, ipus: int | tuple[int, ...]) -> None:
    """Raise ProgramError for ``ipus`` that do not fit ``stage``."""
    count = len(ipus) if isinstance(ipus, tuple) else None
    if (parts := max(len(stage.concurrent), stage.functions)) > 1 or stage.concurrent:
        check_concurrent(parts, count)
    elif isinstance(ipus, tuple):
        layer = stage.layers[0].spec if len(stage.layers) == 1 else None
        if not isinstance(layer, BuiltSpec) or layer.row.kind_class is not Parallel:
            raise ProgramError(
                f"expected one IPU for a stage that is no single layer of type parallel, got {list(ipus)}"
            )
        check_concurrent(len(layer.branches), count)  # type: ignore[attr-defined]
