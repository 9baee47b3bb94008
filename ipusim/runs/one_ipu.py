"""Simulate the work of a run on one IPU, in a timing-only run, for comparison with the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ipusim.analysis.throughput import throughput_of
from ipusim.analysis.verdict import OneIpu
from ipusim.base.errors import IpusimError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.timeline import Timeline

#: Options without a counterpart on one IPU: options of several IPUs, and options that save memory at a cost of time, as
#: the one IPU is assumed to hold the whole model.
_OMITTED_OPTIONS: Final = (
    "system.select_ipus",
    "system.selection_order",
    "system.enable_remote_buffers",
    "system.streaming_memory",
    "system.host.count",
    "pipeline.sync",
    "pipeline.virtual_stages",
    "pipeline.segments",
    "pipeline.micro_batch_group_size",
    "pipeline.authors_order",
    "pipeline.overlapped",
    "pipeline.overlap_copies",
    "pipeline.batch_serialization_iterations",
    "pipeline.allow_recompute",
    "pipeline.recomputation_mode",
    "pipeline.recomputation_checkpoints",
    "pipeline.offload_weight_update_variables",
    "pipeline.offload_gradient_accumulation_buffers",
    "pipeline.offload_activations",
    "pipeline.offload_weights",
    "pipeline.replicated_optimizer_state_sharding",
    "pipeline.replicated_weight_sharding",
    "disturbances",
    "evaluate",
    "expect",
)


def run_on_one_ipu(job: Job, timeline: Timeline) -> OneIpu:
    """Simulate the work of ``job`` on one IPU.

    The schedule is ``single``: all stages on one IPU of the same machine, micro-batch by micro-batch. Model, data,
    micro-batch size, feeds, optimizer, rates, host and synthetic data are those of the run. Micro-batches of all
    replicas and hosts become micro-batches of a single replica, so a weight update covers equally many samples, and the
    run has equally many executions. Links, disturbances and options that save memory (recomputation, offloading,
    sharded state) are left out. If the run already uses one IPU, the result is its cycles.

    Args:
        job: simulated program.
        timeline: whole run.

    Returns:
        Cycles and excess memory, or the reason why one IPU cannot run the program.
    """
    if len(job.plan.ipus) * job.system.learners == 1:
        return OneIpu(throughput_of(timeline).run_cycles)
    try:
        small_job = _on_one_ipu(job)
        cycles = throughput_of(timeline_of(small_job, timeline.info.executions)).run_cycles
    except IpusimError as error:
        if any(len(stages) > 1 for stages in job.program.shape.parts):
            return OneIpu(None, refusal="concurrent stages have separate IPUs")
        texts = [problem.text for problem in error.problems] if isinstance(error, RequestError) else [str(error)]
        return OneIpu(None, refusal="; ".join(" ".join(text.split()).rstrip(".") for text in texts))
    return OneIpu(cycles, max(map(small_job.memory.excess_bytes, small_job.memory.peaks), default=0))


def _on_one_ipu(job: Job) -> Job:
    """Return the Job of the same request on one IPU; raises RequestError if one IPU cannot run it."""
    request, pipeline = job.request, job.request.options.pipeline
    micro_batches = pipeline.gradient_accumulation_count * pipeline.batch_serialization_iterations
    changes: Mapping[str, Any] = {
        **({} if request.functions is not None else {"numerics": "off"}),
        "memory": "report",
        "system.auto_select_ipus": 1,
        "pipeline.schedule": "single",
        "pipeline.device_mapping": [0] * job.program.shape.positions,
        "pipeline.gradient_accumulation_count": micro_batches * job.system.learners,
    }
    return assemble(request.replace(changes, _OMITTED_OPTIONS))
