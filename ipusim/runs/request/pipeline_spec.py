"""Define the keys of a scenario's pipeline section: stages, placement, order and options."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, Discriminator, Field, Strict, Tag

from ipusim.model.learning.variable_work import Reduction
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import Overlapped
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
from ipusim.runs.request.fields import (
    MAX_STAGES,
    MOST_CYCLES,
    Choice,
    CycleCount,
    Name,
    NameOfFile,
    Node,
    expects,
)
from ipusim.runs.request.graphcore import Argument, Attribute
from ipusim.runs.request.model_spec import StageCyclesSpec, StageSpec
from ipusim.runs.request.moved_activations_spec import OffloadedActivations
from ipusim.runs.request.system_spec import PoplarOptionsSpec
from ipusim.schedules import registry
from ipusim.schedules.named import FILE, FILE_WORDS

#: Floating-point types of weights and accumulators.
DType = Literal["float16", "float32", "float64"]

_Ipu = Annotated[int, Field(ge=0, le=63)]


def _device_kind(value: object) -> str:
    return "<ipus>" if isinstance(value, list | tuple) else "<ipu>"


_Device = Annotated[
    Annotated[_Ipu, Field(title="ipu"), Tag("<ipu>")]
    | Annotated[tuple[_Ipu, ...], Strict(False), Field(title="ipus", min_length=1, max_length=16), Tag("<ipus>")],
    Discriminator(_device_kind),
]


def _dtype_kind(value: object) -> str:
    # Literals have no title. Messages name a choice of literals by this tag, one of its names.
    return "<each>" if isinstance(value, dict) else "<float32>"


def _mapping_kind(value: object) -> str:
    return "<each stage>" if isinstance(value, list | tuple) else "<v>"


_Item = TypeVar("_Item")
_EachStage = Annotated[
    tuple[_Item, ...],
    Strict(False),
    Field(title="each stage", min_length=1, max_length=MAX_STAGES),
    Tag("<each stage>"),
]
_Devices = Annotated[
    _EachStage[_Device] | Annotated[Literal["v"], Choice(("v",)), Field(title="v"), Tag("<v>")],
    Discriminator(_mapping_kind),
]


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


def _listed_or_file(value: object) -> str | None:
    return "<profile>" if isinstance(value, str) else "<each stage>" if isinstance(value, dict | list | tuple) else None


_Profile = Annotated[
    str,
    Field(
        title="profile",
        pattern=r"^[^\x00]{1,1024}\.csv$",
        json_schema_extra=expects("a CSV file with a row for each stage, such as profile.csv"),
    ),
    AfterValidator(NameOfFile),
    Tag("<profile>"),
]
_ListedOrFile = Annotated[_EachStage[_Item] | _Profile, Discriminator(_listed_or_file)]


class StageOptionsSpec(Node, title="stage options"):
    """Options of a stage's operations (Graphcore's PipelineStageOptions)."""

    convolution_options: PoplarOptionsSpec = Field(
        default_factory=PoplarOptionsSpec, description="options of convolutions; default: the system's"
    )
    matmul_options: PoplarOptionsSpec = Field(
        default_factory=PoplarOptionsSpec, description="options of matrix products; default: the system's"
    )


_StageOptionsList = Annotated[tuple[StageOptionsSpec, ...], Strict(False)]


class PipelineSpec(Node, title="pipeline"):
    """Stages of the model, with placement and order."""

    schedule: Annotated[
        str,
        Choice(registry.names, FILE, FILE_WORDS),
        Argument("grouped, interleaved, sequential; in addition sharded and single", name="pipeline_schedule"),
    ] = Field(default="grouped", description="order of the passes")
    sync: Annotated[str, Choice(tuple(mode.value for mode in Sync))] | None = Field(
        default=None, description="sync mode, the points at which IPUs wait for each other; default: the schedule's"
    )
    overlap_copies: bool = Field(
        default=True,
        description="whether an IPU continues its program during its outgoing copies, with sync: point_to_point",
    )
    overlapped: Annotated[Overlapped, CycleCount(MOST_CYCLES, ("sum", "max"))] = Field(
        default="sum",
        description="duration of a composite pass, a forward pass and another stage's backward pass in one slot "
        "(dualpipe, dualpipe_v, OVERLAP_F_B of torch's CSV): sum of both, as an IPU computes one pass at a time; max "
        "of both; or cycles, or a time",
    )
    splits: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None,
        max_length=MAX_STAGES - 1,
        description="names of the layers that begin the second and later stages",
    )
    stages: Annotated[
        _ListedOrFile[StageSpec] | None,
        Argument(
            "stages as lists of layers, functions or costs, or lists of concurrent ones; or `pipeline.splits`",
            name="computational_stages",
        ),
    ] = Field(
        default=None,
        description="the stages, instead of splits: layer names, Python functions, or only costs; or a file with the "
        "costs, with a row for each stage and a column for each key of a stage with costs",
    )
    cycles: _ListedOrFile[StageCyclesSpec] | None = Field(
        default=None,
        description="measured cycles of each stage, instead of the cost model's: a list, or a file with a row for each "
        "stage and columns stage, forward, backward and the other keys of the list",
    )
    device_mapping: Annotated[
        _Devices | None,
        Argument("the IPU of each stage; an IPU may hold several stages; concurrent stages take a list of IPUs"),
    ] = Field(
        default=None,
        description="the IPU of each stage, or a list of IPUs for concurrent stages; or v, over the IPUs and back, as "
        "0, 1, 1, 0; default: one stage on each IPU, or the mapping of the schedule, its file or virtual_stages",
    )
    virtual_stages: int | None = Field(
        default=None,
        ge=1,
        le=MAX_STAGES,
        description="number of stages on each IPU, far apart in the model: the stages go round the IPUs that number of "
        "times, as 0, 1, 0, 1, or over the IPUs and back if the schedule or device_mapping has a V; default: the "
        "number in device_mapping",
    )
    micro_batch_size: int = Field(
        default=1, ge=1, le=65_536, description="samples in a micro-batch (Graphcore's batch size)"
    )
    gradient_accumulation_count: Annotated[
        int,
        Argument(
            "micro-batches of an execution; other counts than multiples of the overlap length are refused with "
            "Graphcore's message"
        ),
    ] = Field(ge=1, le=2**31 - 1, description="micro-batches of one execution of the pipeline")
    repeat_count: Annotated[int, Argument("executions in a step; each ends with a weight update")] = Field(
        default=1, ge=1, le=10**6, description="executions of the pipeline in one step"
    )
    batch_serialization_iterations: Annotated[
        int, Argument("micro-batches that each stage runs before the next stage begins; Sequential on one IPU, SUM")
    ] = Field(
        default=1,
        ge=1,
        le=65_536,
        description="micro-batches that each stage runs in a row; more than 1 needs all stages on one IPU and "
        "schedule: sequential, and makes both the default",
    )
    segments: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="number of equal parts of a micro-batch along its sequence, which go through the stages one by one "
        "under seq_1f1b; a part takes an equal share of a stage's times and bytes; default: 2",
    )
    micro_batch_group_size: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="number of micro-batches that a stage runs before its IPU changes to the next stage, under "
        "interleaved_1f1b; the number of IPUs or more, in the last group too; default: equal groups with a size as "
        "near to the number of IPUs as the count allows",
    )
    authors_order: bool = Field(
        default=False,
        description="whether v_half, v_min and zbv run the order of their authors' code, which differs for few "
        "micro-batches: on p IPUs at most p + 1 under v_half and v_min, and fewer than 2p - 1 under zbv",
    )
    allow_recompute: Annotated[bool, Attribute("activations are recomputed instead of kept")] = Field(
        default=False, description="whether activations are recomputed before a backward pass instead of kept"
    )
    recomputation_mode: Annotated[
        str,
        Choice(("Auto", THEN_BACKPROPAGATE, INTERLEAVED)),
        Argument(
            "Auto, RecomputeThenBackpropagate, RecomputeAndBackpropagateInterleaved, as each schedule allows; "
            "recomputation_checkpoint is `pipeline.recomputation_checkpoints`"
        ),
    ] = Field(
        default="Auto",
        description="when activations are recomputed: before a backward pass, or inside it; Auto: with `framework: "
        "popart` and `pytorch` inside the backward pass if the schedule allows, else the schedule's choice",
    )
    recomputation_checkpoints: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None,
        max_length=1024,
        description="layers with kept outputs; the layers between two of these are recomputed just before their part "
        "of the backward pass (RecomputeAndBackpropagateInterleaved); default: with `framework: popart` and `pytorch` "
        "the last layer of each repetition except the last, as in Graphcore's programs, else none",
    )
    offload_weight_update_variables: Annotated[
        bool | None,
        Argument(
            "optimizer state in Streaming Memory, loaded before and stored after the weight update; absent: true if "
            "the machine has Streaming Memory"
        ),
    ] = Field(
        default=None,
        description="whether the optimizer's state lies in Streaming Memory; default: if the program has Streaming "
        "Memory, but not if `system.host.framework` is popart or pytorch, which keep the state on the IPUs",
    )
    offload_gradient_accumulation_buffers: Annotated[
        bool | None,
        Argument(
            "accumulators in Streaming Memory, loaded before and stored after each backward pass; absent: true with "
            "batch serialization"
        ),
    ] = Field(
        default=None,
        description="whether the gradient accumulators lie in Streaming Memory; default: with batch serialization, if "
        "the program has Streaming Memory",
    )
    offload_activations: Annotated[
        OffloadedActivations | None,
        Argument(
            "activations in Streaming Memory, only with batch serialization; absent: true if the machine has Streaming "
            "Memory"
        ),
    ] = Field(
        default=None,
        description="whether activations lie in Streaming Memory, only with batch serialization; or, under any "
        "schedule, the activations that are moved off their IPU after a forward pass and back before the backward "
        "pass; default: with batch serialization, if the program has Streaming Memory",
    )
    replicated_optimizer_state_sharding: Annotated[
        bool,
        Argument(
            "each replica stores a part of the offloaded optimizer state; an all-gather runs before each weight update"
        ),
    ] = Field(
        default=False,
        description="whether each replica stores a part of the optimizer's state, and all replicas together the whole "
        "state; the state must be offloaded unless `system.host.framework` is popart or pytorch; replicas of popart "
        "and pytorch each update a part of each variable, with a reduce-scatter of the gradients before the update "
        "and an all-gather of the new weights after the update",
    )
    replicated_weight_sharding: Annotated[
        bool | None,
        Argument(
            "each replica stores a part of the weights; an all-gather runs before each pass; absent: true with batch "
            "serialization"
        ),
    ] = Field(
        default=None,
        description="whether each replica stores a part of the weights; default: with batch serialization, if the "
        "program has Streaming Memory",
    )
    offload_weights: Annotated[
        bool | None,
        Argument(
            "true or absent: sharded weights lie in Streaming Memory; with sharding, false is refused, as by "
            "Graphcore's compiler"
        ),
    ] = Field(
        default=None,
        description="whether weights lie in Streaming Memory if each replica stores a part of the weights; false is "
        "refused with such weights; default: true",
    )
    variables_on_host: bool = Field(
        default=False,
        description="whether the host updates the weights and keeps the optimizer's state in its memory, as with "
        "IPUMultiWorkerStrategy and IPUHorovodStrategy: gradients go to the host after the last pass, and new weights "
        "come back",
    )
    continuous_weight_updates: Annotated[
        bool,
        Argument("false; true is refused with Graphcore's message, as Graphcore does not implement the option either"),
    ] = Field(
        default=False,
        description="weight updates while the pipeline is full, which Graphcore does not support: only false",
    )
    reduction_method: Annotated[Reduction, Choice(get_args(Reduction)), Argument("SUM, MEAN or RUNNING_MEAN")] = Field(
        default="SUM", description="how the gradients of the micro-batches are accumulated"
    )
    forward_propagation_stages_poplar_options: Annotated[
        _StageOptionsList | None,
        Argument("availableMemoryProportion and partialsType of matrix products and convolutions"),
    ] = Field(default=None, max_length=MAX_STAGES, description="options of the forward pass of each stage")
    backward_propagation_stages_poplar_options: Annotated[
        _StageOptionsList | None, Argument("availableMemoryProportion and partialsType of backward passes")
    ] = Field(default=None, max_length=MAX_STAGES, description="options of the backward pass of each stage")
    weight_update_poplar_options: Annotated[
        StageOptionsSpec,
        Argument("accepted without effect: a weight update has only elementwise operations here, which are not split"),
    ] = Field(default_factory=StageOptionsSpec, description="options of the weight update")
    outfeed_loss: Annotated[
        bool,
        Argument(
            "a training program's outfeed carries only the loss, which is also the default here without outfeed_mask"
        ),
    ] = Field(
        default=False,
        description="whether the outfeed carries only the loss, which is also the default without outfeed_mask",
    )
    outfeed_mask: Annotated[
        Annotated[tuple[bool, ...], Strict(False)] | None,
        Argument("true for predictions or loss to leave out; with a mask the last stage returns both"),
    ] = Field(
        default=None,
        max_length=16,
        description="two values, for the predictions and the loss of a training program; true leaves the output out of "
        "the outfeed",
    )
    accumulate_outfeed: Annotated[
        bool, Argument("results are summed on the IPU; one element is sent with each weight update")
    ] = Field(
        default=False, description="whether an execution's results are summed on the IPU and only the sum is sent"
    )
    accumulate_outfeed_dtype: Annotated[
        Annotated[DType, Choice(get_args(DType))] | None,
        Argument("floating-point type of the sum of results, which sets its bytes"),
    ] = Field(default=None, description="floating-point type of the sum of results; default: the results' type")
    gradient_accumulation_dtype: Annotated[
        _AccumulationDType | None,
        Argument("type of all accumulators, or by layer or variable; sets their bytes and the time of additions"),
    ] = Field(
        default=None,
        description="floating-point type of all accumulators, or by layer or parameter (layer/W); default: the "
        "weights' type",
    )
