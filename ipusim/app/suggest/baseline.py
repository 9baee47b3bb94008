"""Simulate a scenario's given plan, the reference of a suggestion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.api import Job, Machine, Request, RequestError, assemble, hardware, runs
from ipusim.app.study.trial import Trial, is_limited, time_alone
from ipusim.base.errors import OptionError

#: Placement of activations left on their IPU.
STAY: Final = "stay"


@dataclass(frozen=True, eq=False)
class Baseline:
    """Plan that a scenario gives.

    Attributes:
        request: request of the scenario.
        trial: trial of the plan, made even if memory is exceeded; a refused plan has one line per reason.
        ipus: device size in IPUs.
        replicas: number of model replicas.
        mapping: IPU of each stage; empty if the scenario does not say.
        training: whether backward passes exist.
    """

    request: Request
    trial: Trial
    ipus: int
    replicas: int
    mapping: tuple[int, ...]
    training: bool

    @property
    def job(self) -> Job | None:
        """Job of the given plan; None if a rule refuses the plan."""
        return self.trial.job

    @property
    def has_selection(self) -> bool:
        """Whether the scenario selects a specific device."""
        return self.request.options.system.select_ipus is not None

    @property
    def machine(self) -> Machine:
        """Machine of the scenario."""
        return hardware.MACHINES[self.request.options.system.name]

    @property
    def has_limits(self) -> bool:
        """Whether plans must fit in memory, even if the scenario only reports plans that do not."""
        return is_limited(self.request)

    @property
    def concurrent(self) -> bool:
        """Whether stages run concurrently; the search leaves concurrent stages unchanged."""
        return _concurrent(self.request.options.pipeline)

    @property
    def hosts(self) -> int:
        """Number of hosts that train together, with a device each; the search leaves the number unchanged."""
        return self.request.options.system.host.count

    @property
    def serialization(self) -> int:
        """Number of micro-batches that a stage runs in a row, due to batch serialization."""
        return self.request.options.pipeline.batch_serialization_iterations

    @property
    def activations(self) -> str:
        """Memory that activations move to, or ``stay``."""
        spec = self.request.options.pipeline.offload_activations
        return spec.to if isinstance(spec, runs.MovedActivationsSpec) else STAY

    @property
    def micro_batch_size(self) -> int:
        """Number of samples in a micro-batch."""
        return self.request.options.pipeline.micro_batch_size

    @property
    def global_batch(self) -> int:
        """Number of samples in a weight update."""
        count = self.request.options.pipeline.gradient_accumulation_count
        return self.micro_batch_size * count * self.serialization * self.replicas * self.hosts


def _concurrent(pipeline: runs.PipelineSpec) -> bool:
    """Return whether any position holds several stages, or any stage spans several IPUs."""
    stages = (stage for stage in pipeline.stages or () if isinstance(stage, tuple))
    several = any(isinstance(part, runs.TimedStageSpec) for stage in stages for part in stage)
    return several or any(isinstance(ipus, tuple) for ipus in pipeline.device_mapping or ())


def _with_listed_stages(request: Request) -> Request:
    """Return a request with its stages listed instead of a file of times.

    The search can place listed stages anew.
    """
    if not isinstance(request.options.pipeline.stages, str):
        return request
    findings = runs.Findings(request.is_set)
    full_options = runs.with_stages(request.options, request.folder, findings)
    findings.raise_if_any()
    return request.replace({"pipeline.stages": runs.options_set(full_options.pipeline.stages)})


def baseline_of(request: Request) -> Baseline:
    """Return the given plan of ``request``, legal or not.

    Raises:
        OptionError: for stages that are Python functions, which the search cannot change, and for disturbances, which
            the bounds do not model.
        RequestError: for refused concurrent stages, as the search leaves them unchanged.
        RequestMemoryError: for concurrent stages that exceed memory.
    """
    request = _with_listed_stages(request)
    options = request.options
    if request.functions is not None:
        text = "expected stages in the format of a scenario, got Python functions: use a Request with options"
        raise OptionError("scenario", text)
    if options.disturbances:
        raise OptionError("scenario", f"expected a system without disturbances, got {len(options.disturbances)}")
    concurrent = _concurrent(options.pipeline)
    try:
        trial = Trial(assemble(time_alone(request, allow_oversized=not concurrent)))
    except RequestError as error:
        if concurrent:
            raise
        trial = Trial(None, str(error))
    if (job := trial.job) is not None:
        shape = job.program.shape
        return Baseline(request, trial, job.system.count, job.system.replicas, shape.mapping, shape.training)
    mapping = tuple(ipu for ipu in options.pipeline.device_mapping or () if isinstance(ipu, int))
    stages = len(options.pipeline.splits or options.pipeline.stages or ()) + (options.pipeline.stages is None)
    mapping = mapping or tuple(range(stages))
    ipus = options.system.auto_select_ipus or hardware.shards_of(mapping)
    training = options.training if options.training is not None else options.optimizer is not None
    return Baseline(request, trial, ipus, max(ipus // hardware.shards_of(mapping), 1), mapping, training)
