"""The part of a request that says how the model is cut into stages, where they run, in which order and with what."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import AfterValidator, Discriminator, Field, Strict, Tag

from ipusim.model.learning.variable_work import Reduction
from ipusim.pipeline.offload import Destination
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import Overlapped
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
from ipusim.runs.request.fields import MOST_CYCLES, Choice, CycleCount, Name, NameOfFile, Node, expects
from ipusim.runs.request.graphcore import Argument, Attribute
from ipusim.runs.request.model_spec import StageCyclesSpec, StageSpec
from ipusim.runs.request.system_spec import PoplarOptionsSpec
from ipusim.schedules import registry
from ipusim.schedules.named import FILE, FILE_WORDS

#: Floating-point types of weights and accumulators.
DType = Literal["float16", "float32", "float64"]

#: Most stages of a pipeline: 4 on each IPU of the largest pod, which it cannot go beyond.
MAX_STAGES: Final = 256


_Ipu = Annotated[int, Field(ge=0, le=63)]


def _device_kind(value: object) -> str:
    return "<ipus>" if isinstance(value, list | tuple) else "<ipu>"


_Device = Annotated[
    Annotated[_Ipu, Field(title="ipu"), Tag("<ipu>")]
    | Annotated[tuple[_Ipu, ...], Strict(False), Field(title="ipus", min_length=1, max_length=16), Tag("<ipus>")],
    Discriminator(_device_kind),
]


def _dtype_kind(value: object) -> str:
    # A choice has no title: one of its names tells it apart (see the messages).
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
        default_factory=PoplarOptionsSpec, description="those of convolutions; default: the system's"
    )
    matmul_options: PoplarOptionsSpec = Field(
        default_factory=PoplarOptionsSpec, description="those of matrix products; default: the system's"
    )


class MovedActivationsSpec(Node, title="moved activations"):
    """Activations that are moved off their IPU behind forward passes, and back before the passes that use them."""

    to: Annotated[Literal["streaming_memory", "partner"], Choice(get_args(Destination))] = Field(
        default="streaming_memory",
        description="where they go: to the Streaming Memory beside their IPU, or to the IPU that is as far from the "
        "other end of the pipeline, as in BPipe",
    )
    stages: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_STAGES,
        description="names of the stages whose activations are moved; default: all",
    )
    keep: int | None = Field(
        default=None,
        ge=0,
        le=10**6,
        description="micro-batches of a stage that stay on its IPU at most; default: 1, or with partner as many as "
        "leave no IPU with more than half of p + 2 for p IPUs under 1f1b, rounded up",
    )
    buffers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="micro-batches of a stage beside these that are worked on, or on their way, at once at most; with "
        "more than one, moves in point-to-point run beside the passes of other micro-batches that are moved",
    )


def _moved_kind(value: object) -> str:
    return "<moved activations>" if isinstance(value, dict | Node) else "<true or false>"


_Offloaded = Annotated[
    Annotated[bool, Field(title="true or false"), Tag("<true or false>")]
    | Annotated[MovedActivationsSpec, Tag("<moved activations>")],
    Discriminator(_moved_kind),
]
_StageOptionsList = Annotated[tuple[StageOptionsSpec, ...], Strict(False)]


class PipelineSpec(Node, title="pipeline"):
    """How the model is cut into stages, where they run and in which order."""

    schedule: Annotated[
        str,
        Choice(registry.names, FILE, FILE_WORDS),
        Argument("grouped, interleaved, sequential; beside them sharded and single", name="pipeline_schedule"),
    ] = Field(default="grouped", description="order of the passes")
    sync: Annotated[str, Choice(tuple(mode.value for mode in Sync))] | None = Field(
        default=None, description="how IPUs wait for each other; default: the schedule's own"
    )
    overlap_copies: bool = Field(
        default=True, description="in point_to_point, whether an IPU goes on while what it has sent is on its way"
    )
    overlapped: Annotated[Overlapped, CycleCount(MOST_CYCLES, ("sum", "max"))] = Field(
        default="sum",
        description="what a composite pass takes, the forward pass of a stage in one slot with the backward pass of "
        "another (dualpipe, dualpipe_v, OVERLAP_F_B of torch's CSV): the sum of both, as an IPU computes one after the "
        "other, the longer one (max), or cycles or a time",
    )
    splits: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None, max_length=MAX_STAGES - 1, description="each names the layer that is the first of the next stage"
    )
    stages: Annotated[
        _ListedOrFile[StageSpec] | None,
        Argument(
            "stages as lists of layers, functions or costs, or lists of concurrent ones; or `pipeline.splits`",
            name="computational_stages",
        ),
    ] = Field(
        default=None,
        description="the stages, instead of splits: layer names, Python functions, or costs alone, which a file beside "
        "the scenario can have, with a row for each stage and columns by the keys of such a stage",
    )
    cycles: _ListedOrFile[StageCyclesSpec] | None = Field(
        default=None,
        description="measured cycles of each stage, instead of the cost model's, in a list or in a file beside the "
        "scenario, with a row for each stage and columns stage, forward, backward and the others of such a list",
    )
    device_mapping: Annotated[
        _Devices | None,
        Argument("the IPU of each stage, several on one IPU included, and lists for concurrent stages"),
    ] = Field(
        default=None,
        description="the IPU of each stage, of concurrent ones a list, or v: over the IPUs and back, as 0, 1, 1, 0; "
        "default: one stage on each IPU, or as the schedule, its file or virtual_stages says",
    )
    virtual_stages: int | None = Field(
        default=None,
        ge=1,
        le=MAX_STAGES,
        description="stages on each IPU, far apart in the model: they go round the IPUs so many times, as 0, 1, 0, 1, "
        "or over them and back where the schedule or device_mapping has a V; default: as device_mapping says",
    )
    micro_batch_size: int = Field(
        default=1, ge=1, le=65_536, description="samples in a micro-batch (Graphcore's batch size)"
    )
    gradient_accumulation_count: Annotated[
        int, Argument("micro-batches of an execution; a multiple of the overlap length, with Graphcore's message")
    ] = Field(ge=1, le=2**31 - 1, description="micro-batches of one execution of the pipeline")
    repeat_count: Annotated[int, Argument("executions in a step, each with its weight update")] = Field(
        default=1, ge=1, le=10**6, description="executions of the pipeline in one step"
    )
    batch_serialization_iterations: Annotated[
        int, Argument("each stage runs so many micro-batches before the next one begins; Sequential on one IPU, SUM")
    ] = Field(
        default=1,
        ge=1,
        le=65_536,
        description="micro-batches that each stage runs in a row; more than 1 with all stages on one IPU and schedule "
        "sequential, which are then the default",
    )
    segments: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="equal parts of a micro-batch along its sequence, each of which goes through the stages by itself, "
        "under seq_1f1b; stages take such a part of their times and bytes for each; default: 2",
    )
    micro_batch_group_size: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="micro-batches that a stage runs before the next stage of its IPU does, under interleaved_1f1b: as "
        "many as there are IPUs or more, and the last of them so many, too; default: equal groups as near to the "
        "number of IPUs as the count allows",
    )
    authors_order: bool = Field(
        default=False,
        description="whether v_half, v_min and zbv run the order that their authors' own code has: it is another one "
        "for few micro-batches, v_half and v_min of at most one more than there are IPUs, zbv of fewer than twice as "
        "many less one",
    )
    allow_recompute: Annotated[bool, Attribute("activations are computed again instead of kept")] = Field(
        default=False, description="whether activations are computed again before a backward pass instead of kept"
    )
    recomputation_mode: Annotated[
        str,
        Choice(("Auto", THEN_BACKPROPAGATE, INTERLEAVED)),
        Argument(
            "Auto, RecomputeThenBackpropagate, RecomputeAndBackpropagateInterleaved, as each schedule allows; "
            "recomputation_checkpoint is `pipeline.recomputation_checkpoints`"
        ),
    ] = Field(default="Auto", description="when they are computed again; Auto: the schedule's own way")
    recomputation_checkpoints: Annotated[tuple[Name, ...], Strict(False)] = Field(
        default=(),
        max_length=1024,
        description="layers whose outputs are kept, so that a backward pass computes the layers between them again one "
        "part after another (RecomputeAndBackpropagateInterleaved)",
    )
    offload_weight_update_variables: Annotated[
        bool | None,
        Argument(
            "optimizer state in Streaming Memory, loaded and stored around the weight update; absent: if there is any"
        ),
    ] = Field(
        default=None,
        description="whether the optimizer's state lies in Streaming Memory; default: if there is any for the program, "
        "but not where `system.host.framework` is popart or pytorch, which keep it on the IPUs",
    )
    offload_gradient_accumulation_buffers: Annotated[
        bool | None,
        Argument(
            "accumulators in Streaming Memory, loaded and stored around every backward pass; absent: with serialization"
        ),
    ] = Field(
        default=None,
        description="whether the gradient accumulators lie in Streaming Memory; default: if there is any and batches "
        "are serialized",
    )
    offload_activations: Annotated[
        _Offloaded | None,
        Argument("activations in Streaming Memory, with batch serialization alone; absent: if there is any"),
    ] = Field(
        default=None,
        description="whether activations lie in Streaming Memory, with batch serialization only; or, under any "
        "schedule, which of them are moved off their IPU behind a forward pass, and back before the backward pass; "
        "default: with batch serialization, if there is any Streaming Memory",
    )
    replicated_optimizer_state_sharding: Annotated[
        bool,
        Argument(
            "each replica stores its part of the offloaded optimizer's state; an all-gather before each weight update"
        ),
    ] = Field(
        default=False,
        description="whether each replica stores a part of the optimizer's state, and all of them together the whole; "
        "the state must be offloaded unless `system.host.framework` is popart or pytorch, whose replicas update a part "
        "of each variable: gradients are reduce-scattered before it, and new weights gathered behind it",
    )
    replicated_weight_sharding: Annotated[
        bool | None,
        Argument(
            "each replica stores its part of the weights; an all-gather before each pass; absent: with serialization"
        ),
    ] = Field(
        default=None,
        description="whether each replica stores a part of the weights; default: if batches are serialized and there "
        "is Streaming Memory",
    )
    offload_weights: Annotated[
        bool | None,
        Argument(
            "true or absent: those parts lie in Streaming Memory; false is refused with sharding, as the compiler does"
        ),
    ] = Field(
        default=None,
        description="whether weights of which replicas store parts lie in Streaming Memory; default: they do, and "
        "false is refused with them",
    )
    variables_on_host: bool = Field(
        default=False,
        description="whether the host updates the weights, and keeps the optimizer's state in its own memory, as "
        "IPUMultiWorkerStrategy and IPUHorovodStrategy offer: gradients go there behind the last pass, and new weights "
        "come back",
    )
    continuous_weight_updates: Annotated[
        bool, Argument("false; true is refused in Graphcore's words: it is not implemented there either")
    ] = Field(
        default=False, description="updates while the pipeline is full, which Graphcore does not support: only false"
    )
    reduction_method: Annotated[Reduction, Choice(get_args(Reduction)), Argument("SUM, MEAN or RUNNING_MEAN")] = Field(
        default="SUM", description="how the gradients of the micro-batches are accumulated"
    )
    forward_propagation_stages_poplar_options: Annotated[
        _StageOptionsList | None,
        Argument("availableMemoryProportion and partialsType of matrix products and convolutions"),
    ] = Field(default=None, max_length=MAX_STAGES, description="options of the forward pass of each stage")
    backward_propagation_stages_poplar_options: Annotated[
        _StageOptionsList | None, Argument("the same of backward passes")
    ] = Field(default=None, max_length=MAX_STAGES, description="options of the backward pass of each stage")
    weight_update_poplar_options: Annotated[
        StageOptionsSpec,
        Argument("the same of the weight update, whose operations are elementwise here, so that nothing is split"),
    ] = Field(default_factory=StageOptionsSpec, description="options of the weight update")
    outfeed_loss: Annotated[
        bool, Argument("a training program's outfeed carries the loss alone, as it does here without outfeed_mask too")
    ] = Field(
        default=False, description="whether the outfeed carries the loss alone, as it does without outfeed_mask too"
    )
    outfeed_mask: Annotated[
        Annotated[tuple[bool, ...], Strict(False)] | None,
        Argument("which of predictions and loss are left out; with it the last stage gives both"),
    ] = Field(
        default=None,
        max_length=16,
        description="of the predictions and the loss of a training program, true for what the outfeed leaves out",
    )
    accumulate_outfeed: Annotated[
        bool, Argument("results are summed up on the IPU; one element goes out with each weight update")
    ] = Field(default=False, description="whether an execution's results are summed up on the IPU, and the sum is sent")
    accumulate_outfeed_dtype: Annotated[
        Annotated[DType, Choice(get_args(DType))] | None, Argument("type of that sum, and so its bytes")
    ] = Field(default=None, description="floating-point type of that sum; default: that of the results")
    gradient_accumulation_dtype: Annotated[
        _AccumulationDType | None,
        Argument("type of the accumulators, their bytes and the time of adding; of all, or by layer or variable"),
    ] = Field(
        default=None,
        description="floating-point type of the accumulators, of all or by layer or parameter (layer/W); default: the "
        "weights' own",
    )
