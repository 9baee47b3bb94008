"""The schema of a scenario: every key with its kind, bounds, unit and meaning.

Bounds keep any scenario that passes them within memory and 64-bit cycles; the
product of the counts is bounded when the scenario is resolved.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag

from ipusim.model.workload import Reduction
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
from ipusim.runs.request.data_spec import DataSpec
from ipusim.runs.request.fields import (
    NONE,
    Bytes,
    Choice,
    Name,
    Node,
    Seed,
    expects,
)
from ipusim.runs.request.model_spec import ModelSpec, StageCyclesSpec, StageSpec
from ipusim.runs.request.optimizer_spec import OptimizerSpec
from ipusim.runs.request.rates_spec import RatesSpec
from ipusim.runs.request.system_spec import PoplarOptionsSpec, SystemSpec
from ipusim.schedules import registry

#: Floating-point types of weights and accumulators.
DType = Literal["float16", "float32", "float64"]

#: Most stages of a pipeline: 4 on each IPU of the largest pod, which it cannot go beyond.
MAX_STAGES: Final = 256


#: A depth whose own rule, with Graphcore's text, is held when the scenario is resolved; the schema offers that range.
_Depth = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


_Ipu = Annotated[int, Field(ge=0, le=63)]


def _device_kind(value: object) -> str:
    return "<ipus>" if isinstance(value, list | tuple) else "<ipu>"


_Device = Annotated[
    Annotated[_Ipu, Field(title="ipu"), Tag("<ipu>")]
    | Annotated[tuple[_Ipu, ...], Strict(False), Field(title="ipus", min_length=1, max_length=16), Tag("<ipus>")],
    Discriminator(_device_kind),
]


def _without_none(value: object) -> object:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _or_none(schema: dict[str, Any]) -> None:
    """Allow the word beside null in a JSON Schema, and say what is expected."""
    schema["anyOf"].append(NONE)
    schema |= expects("a mapping with the type and learning_rate of an optimizer, or none for inference")


def _dtype_kind(value: object) -> str:
    # A choice has no title: one of its names tells it apart (see the messages).
    return "<each>" if isinstance(value, dict) else "<float32>"


_DTypeName = Annotated[DType, Choice(get_args(DType))]
_ParameterName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}(/[A-Za-z0-9_/-]{1,200})?$",
        json_schema_extra=expects("a layer, or a parameter of one, such as dense/W"),
    ),
]
_AccumulationDType = Annotated[
    Annotated[_DTypeName, Tag("<float32>")]
    | Annotated[dict[_ParameterName, _DTypeName], Field(title="each", max_length=1024), Tag("<each>")],
    Discriminator(_dtype_kind),
]


class StageOptionsSpec(Node, title="stage options"):
    """Options of a stage's operations (Graphcore's PipelineStageOptions)."""

    convolution_options: PoplarOptionsSpec = Field(
        default_factory=PoplarOptionsSpec, description="those of convolutions; default: the system's"
    )
    matmul_options: PoplarOptionsSpec = Field(
        default_factory=PoplarOptionsSpec, description="those of matrix products; default: the system's"
    )


_StageOptionsList = Annotated[tuple[StageOptionsSpec, ...], Strict(False)]


class PipelineSpec(Node, title="pipeline"):
    """How the model is cut into stages, where they run and in which order."""

    schedule: Annotated[str, Choice(registry.names)] = Field(default="grouped", description="order of the passes")
    sync: Annotated[str | None, Choice(tuple(each.value for each in Sync))] = Field(
        default=None, description="how IPUs wait for each other; default: the schedule's own"
    )
    overlap_copies: bool = Field(
        default=True, description="in point_to_point, whether an IPU goes on while what it has sent is on its way"
    )
    splits: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None, max_length=MAX_STAGES - 1, description="each names the layer that is the first of the next stage"
    )
    stages: Annotated[tuple[StageSpec, ...], Strict(False)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_STAGES,
        description="the stages, instead of splits: layer names, Python functions, or costs alone",
    )
    cycles: Annotated[tuple[StageCyclesSpec, ...], Strict(False)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_STAGES,
        description="measured cycles of each stage, instead of the cost model's",
    )
    device_mapping: Annotated[tuple[_Device, ...], Strict(False)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_STAGES,
        description="the IPU of each stage, of concurrent ones a list; default: one stage on each IPU",
    )
    micro_batch_size: int = Field(
        default=1, ge=1, le=65_536, description="samples in a micro-batch (Graphcore's batch size)"
    )
    gradient_accumulation_count: int = Field(
        ge=1, le=2**31 - 1, description="micro-batches of one execution of the pipeline"
    )
    repeat_count: int = Field(default=1, ge=1, le=10**6, description="executions of the pipeline in one step")
    batch_serialization_iterations: int = Field(
        default=1,
        ge=1,
        le=65_536,
        description="micro-batches that each stage runs in a row; more than 1 with all stages on one IPU and schedule "
        "sequential, which are then the default",
    )
    allow_recompute: bool = Field(
        default=False, description="whether activations are computed again before a backward pass instead of kept"
    )
    recomputation_mode: Annotated[str, Choice(("Auto", THEN_BACKPROPAGATE, INTERLEAVED))] = Field(
        default="Auto", description="when they are computed again; Auto: the schedule's own way"
    )
    recomputation_checkpoints: Annotated[tuple[Name, ...], Strict(False)] = Field(
        default=(),
        max_length=1024,
        description="layers whose outputs are kept, so that a backward pass computes the layers between them again one "
        "part after another (RecomputeAndBackpropagateInterleaved)",
    )
    offload_weight_update_variables: bool | None = Field(
        default=None,
        description="whether the optimizer's state lies in Streaming Memory; default: if there is any for the program",
    )
    offload_gradient_accumulation_buffers: bool | None = Field(
        default=None,
        description="whether the gradient accumulators lie in Streaming Memory; default: if there is any and batches "
        "are serialized",
    )
    offload_activations: bool | None = Field(
        default=None,
        description="whether activations lie in Streaming Memory, with batch serialization only; default: if there is "
        "any",
    )
    replicated_optimizer_state_sharding: bool = Field(
        default=False,
        description="whether each replica stores a part of the offloaded optimizer's state, and all of them together "
        "the whole",
    )
    replicated_weight_sharding: bool | None = Field(
        default=None,
        description="whether each replica stores a part of the weights; default: if batches are serialized and there "
        "is Streaming Memory",
    )
    offload_weights: bool | None = Field(
        default=None,
        description="whether weights of which replicas store parts lie in Streaming Memory; default: they do, and "
        "false is refused with them",
    )
    continuous_weight_updates: bool = Field(
        default=False, description="updates while the pipeline is full, which Graphcore does not support: only false"
    )
    reduction_method: Annotated[Reduction, Choice(get_args(Reduction))] = Field(
        default="SUM", description="how the gradients of the micro-batches are accumulated"
    )
    forward_propagation_stages_poplar_options: _StageOptionsList | None = Field(
        default=None, max_length=MAX_STAGES, description="options of the forward pass of each stage"
    )
    backward_propagation_stages_poplar_options: _StageOptionsList | None = Field(
        default=None, max_length=MAX_STAGES, description="options of the backward pass of each stage"
    )
    weight_update_poplar_options: StageOptionsSpec = Field(
        default_factory=StageOptionsSpec, description="options of the weight update"
    )
    outfeed_loss: bool = Field(
        default=False, description="whether the outfeed carries the loss alone, as it does without outfeed_mask too"
    )
    outfeed_mask: Annotated[tuple[bool, ...], Strict(False)] | None = Field(
        default=None,
        max_length=16,
        description="of the predictions and the loss of a training program, true for what the outfeed leaves out",
    )
    accumulate_outfeed: bool = Field(
        default=False, description="whether an execution's results are summed up on the IPU, and the sum is sent"
    )
    accumulate_outfeed_dtype: Annotated[DType, Choice(get_args(DType))] | None = Field(
        default=None, description="floating-point type of that sum; default: that of the results"
    )
    gradient_accumulation_dtype: _AccumulationDType | None = Field(
        default=None,
        description="floating-point type of the accumulators, of all or by layer or parameter (layer/W); default: the "
        "weights' own",
    )


class InfeedSpec(Node, title="infeed"):
    """The queue from the host to the first stage."""

    prefetch_depth: _Depth = Field(
        default=3,
        description="micro-batches that the host keeps ready, 1 to 255",
        json_schema_extra={"minimum": 1, "maximum": 255},
    )
    element_bytes: Bytes | None = Field(
        default=None, description="bytes of one micro-batch; default: those of the data"
    )


class OutfeedSpec(Node, title="outfeed"):
    """The queue from the last stage to the host."""

    mode: Annotated[Literal["ALL", "LAST"], Choice(("ALL", "LAST"))] = Field(
        default="ALL", description="whether every micro-batch's results are sent, or only those of a step's last"
    )
    buffer_depth: Annotated[int, Field(ge=-(2**31), le=1024)] = Field(
        default=3, description="results that the host's buffer holds", json_schema_extra={"minimum": 1}
    )
    element_bytes: Bytes | None = Field(
        default=None, description="bytes of one micro-batch's results; default: the last stage's"
    )


class EvaluateSpec(Node, title="evaluate"):
    """Loss and accuracy on the data that was held out."""

    every: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="steps from one evaluation to the next; default: only after the last step",
    )


class Options(Node, title="scenario"):
    """A program for simulated IPUs, what it runs on, and what it learns from."""

    name: Name | None = Field(default=None, description="names the run's folder; default: the file's name")
    system: SystemSpec = Field(description="the machine")
    data: DataSpec | None = Field(
        default=None, description="what the program learns from; absent when only time is simulated"
    )
    model: ModelSpec | None = Field(default=None, description="the layers; absent when the stages say all")
    pipeline: PipelineSpec = Field(description="stages, schedule and counts")
    optimizer: Annotated[OptimizerSpec | None, BeforeValidator(_without_none)] = Field(
        default=None, description="the weight update; none, or absent, for inference", json_schema_extra=_or_none
    )
    training: bool | None = Field(
        default=None,
        description="whether backward passes run; default: if there is an optimizer, or a stage with backward cycles",
    )
    steps: int = Field(
        default=1, ge=1, le=10**6, description="session runs, each of repeat_count executions of the pipeline"
    )
    seed: Seed = Field(default=0, description="seed of the initial weights")
    precision: Annotated[DType, Choice(get_args(DType))] = Field(
        default="float32", description="floating-point type of weights and activations; float64 is for checks"
    )
    numerics: Annotated[Literal["on", "off"], Choice(("on", "off"))] | None = Field(
        default=None, description="off simulates time alone; default: on if there are data"
    )
    memory: Annotated[Literal["error", "report", "off"], Choice(("error", "report", "off"))] | None = Field(
        default=None,
        description="whether a program that needs more memory than an IPU has is refused, or only reported; "
        "default: error, but off on the machine free, which has no limit",
    )
    code_bytes: Bytes = Field(
        default=0, description="bytes of each IPU's memory to take for code and vertices, an assumption"
    )
    use_synthetic_data: bool = Field(
        default=False,
        description="whether the feeds cost no time, as with Graphcore's flag of that name; losses stay real",
    )
    infeed: InfeedSpec = Field(default_factory=InfeedSpec, description="the queue from the host")
    outfeed: OutfeedSpec = Field(default_factory=OutfeedSpec, description="the queue to the host")
    evaluate: EvaluateSpec | None = Field(default=None, description="evaluation on held-out data")
    rates: RatesSpec = Field(
        default_factory=RatesSpec, description="what prices work and links; `ipusim devices --figures` lists it"
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a scenario, for editors and for messages."""
    schema = Options.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
