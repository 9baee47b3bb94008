"""The plan that a scenario has already, which a suggestion is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.api import Job, Machine, Request, RequestError, assemble, hardware, runs
from ipusim.app.study.trial import is_limited, time_alone
from ipusim.base.errors import OptionError

#: What activations do that are not moved.
STAY: Final = "stay"


@dataclass(frozen=True, eq=False)
class Baseline:
    """A scenario's own plan.

    Attributes:
        request: what was asked for.
        job: its plan, whether it fits or not; None where it is refused.
        refusal: why, a line for each reason.
        ipus: of its device.
        replicas: of its model.
        mapping: the IPU of each stage; empty where nothing says.
        training: whether there are backward passes.
    """

    request: Request
    job: Job | None
    refusal: str
    ipus: int
    replicas: int
    mapping: tuple[int, ...]
    training: bool

    @property
    def has_selection(self) -> bool:
        """Whether the scenario names its device."""
        return self.request.options.system.select_ipus is not None

    @property
    def machine(self) -> Machine:
        """The machine that it runs on."""
        return hardware.MACHINES[self.request.options.system.name]

    @property
    def has_limits(self) -> bool:
        """Whether memory is limited: plans must fit then, also where the scenario has misfits reported only."""
        return is_limited(self.request)

    @property
    def concurrent(self) -> bool:
        """Whether stages run at the same time; they stay as they are."""
        return _concurrent(self.request.options.pipeline)

    @property
    def hosts(self) -> int:
        """The hosts that train together, each with such a device; they stay as they are."""
        return self.request.options.system.host.count

    @property
    def serialization(self) -> int:
        """Micro-batches that each stage runs in a row."""
        return self.request.options.pipeline.batch_serialization_iterations

    @property
    def activations(self) -> str:
        """The place that it moves activations to, or ``stay``."""
        spec = self.request.options.pipeline.offload_activations
        return spec.to if isinstance(spec, runs.MovedActivationsSpec) else STAY

    @property
    def micro_batch_size(self) -> int:
        """Samples in a micro-batch."""
        return self.request.options.pipeline.micro_batch_size

    @property
    def global_batch(self) -> int:
        """Samples behind one weight update."""
        count = self.request.options.pipeline.gradient_accumulation_count
        return self.micro_batch_size * count * self.serialization * self.replicas * self.hosts


def _concurrent(pipeline: runs.PipelineSpec) -> bool:
    """Whether any stage is asked for as several, or on several IPUs."""
    stages = (stage for stage in pipeline.stages or () if isinstance(stage, tuple))
    several = any(isinstance(part, runs.TimedStageSpec) for stage in stages for part in stage)
    return several or any(isinstance(ipus, tuple) for ipus in pipeline.device_mapping or ())


def _with_listed_stages(request: Request) -> Request:
    """Return a request that lists the stages which its file of times holds, so that each can lie elsewhere."""
    if not isinstance(request.options.pipeline.stages, str):
        return request
    findings = runs.Findings(request.is_set)
    full_options = runs.with_stages(request.options, request.folder, findings)
    findings.raise_if_any()
    return request.replace({"pipeline.stages": runs.options_set(full_options.pipeline.stages)})


def baseline_of(request: Request) -> Baseline:
    """Return the plan that ``request`` has, legal or not.

    Raises OptionError for stages that are Python functions, which stay as they are, and for disturbances, which
    bounds know nothing of. Stages that run at the same time stay as they are, too: raises RequestError where those are
    refused, RequestMemoryError where they do not fit.
    """
    request = _with_listed_stages(request)
    options = request.options
    if request.functions is not None:
        text = "expected stages that a scenario says, got Python functions: a Request of options has them"
        raise OptionError("scenario", text)
    if options.disturbances:
        raise OptionError("scenario", f"expected a system without disturbances, got {len(options.disturbances)}")
    concurrent = _concurrent(options.pipeline)
    job, refusal = None, ""
    try:
        job = assemble(time_alone(request, misfits=not concurrent))
    except RequestError as error:
        if concurrent:
            raise
        refusal = str(error)
    if job is not None:
        shape = job.program.shape
        return Baseline(request, job, "", job.system.count, job.system.replicas, shape.mapping, shape.training)
    mapping = tuple(ipu for ipu in options.pipeline.device_mapping or () if isinstance(ipu, int))
    stages = len(options.pipeline.splits or options.pipeline.stages or ()) + (options.pipeline.stages is None)
    mapping = mapping or tuple(range(stages))
    ipus = options.system.auto_select_ipus or hardware.shards_of(mapping)
    training = options.training if options.training is not None else options.optimizer is not None
    return Baseline(request, None, refusal, ipus, max(ipus // hardware.shards_of(mapping), 1), mapping, training)
