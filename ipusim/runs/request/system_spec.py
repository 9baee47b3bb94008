"""Define the keys of a scenario's system section: machine, device, host and Streaming Memory."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field

from ipusim.hardware.machines import MACHINES, find_machine
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.system import FRAMEWORKS
from ipusim.model.stages.stage_options import PARTIALS_BYTES
from ipusim.pipeline.io_tiles import AVAILABLE_MEMORY_PROPORTION
from ipusim.pipeline.offload import MINIMUM_REMOTE_TENSOR_SIZE, MINIMUM_SHARDED_ELEMENTS
from ipusim.runs.request.fields import (
    BufferBytes,
    Bytes,
    BytesPerSecond,
    Choice,
    Hertz,
    HostBytesPerSecond,
    MachineBytes,
    Node,
    Seconds,
    SessionRuns,
)
from ipusim.runs.request.graphcore import Attribute


class HostSpec(Node, title="host"):
    """Host: rates that replace the machine's, and work between session runs."""

    infeed: BytesPerSecond | None = Field(
        default=None, description="bytes per second that an IPU reads from the host's buffer"
    )
    host_fill: HostBytesPerSecond | None = Field(
        default=None, description="bytes per second that the host writes to one IPU's buffer"
    )
    data_rate: HostBytesPerSecond | None = Field(
        default=None,
        description="bytes per second that the host prepares, shared equally by the infeeds of all its replicas; "
        "`ipu.dataset_benchmark` measures the rate of a dataset; default: no limit",
    )
    outfeed: BytesPerSecond | None = Field(
        default=None, description="bytes per second that an IPU writes to the host's buffer"
    )
    host_drain: HostBytesPerSecond | None = Field(
        default=None, description="bytes per second that the host reads from one IPU's buffer"
    )
    network: BytesPerSecond | None = Field(
        default=None, description="bytes per second between two hosts, in each direction"
    )
    count: Annotated[int, Ge(1), Le(1024)] = Field(
        default=1,
        description="number of hosts that train one model, each with an equal device and a share of the data; before "
        "each weight update gradients go to the hosts, which sum the gradients over their network",
    )
    sum_over: Annotated[str, Choice(("network", "links"))] = Field(
        default="network",
        description="where gradients of several hosts are summed: by the hosts, over their network, or by the IPUs, "
        "over the links and gateways of the smallest machine that holds all IPUs",
    )
    framework: Annotated[str, Choice(FRAMEWORKS)] | None = Field(
        default=None,
        description="framework whose host code runs between session runs, each of `repeat_count` executions; the time "
        "of the code is a rate, such as `rates.session_run` and `rates.offchip_state`; default: none, and no time is "
        "counted",
    )
    updates_optimizer: Annotated[int, SessionRuns()] | None = Field(
        default=None,
        description="how often the program sends its optimizer's values anew, as with PopTorch's `setOptimizer` or "
        "PopART's `updateOptimizerFromHost`; a framework's host takes `rates.optimizer_value` for each variable then, "
        "which counts in equal parts after each session run; default: every session run",
    )
    optimizer_values: Annotated[int, Ge(0), Le(64)] | None = Field(
        default=None,
        description="number of values that a pytorch program sends for each variable, each in "
        "`rates.pytorch_optimizer_value`: one for each attribute given to PopTorch's optimizer and not marked as "
        "constant, such as the learning rate; default: 3, as in Graphcore's BERT (learning rate, epsilon, loss "
        "scaling)",
    )


class StreamingMemorySpec(Node, title="streaming memory"):
    """Figures of the Streaming Memory that replace the machine's."""

    bandwidth: BytesPerSecond | None = Field(
        default=None, description="bandwidth of one machine's memory, for its four IPUs together; default: assumed"
    )
    ipu_bandwidth: BytesPerSecond | None = Field(
        default=None, description="bandwidth of one IPU's link to the memory; default: PCIe Gen4 x8"
    )
    capacity: MachineBytes | None = Field(default=None, description="size of one machine's memory; default: 256 GB")


class IoTilesSpec(Node, title="io_tiles"):
    """Tiles of each IPU for copies from and to the host, in parallel with computation."""

    num_io_tiles: Annotated[
        int, Attribute("tiles of each IPU reserved for host copies, without computation and without the program's data")
    ] = Field(default=0, ge=0, le=1024, description="tiles without computation")
    place_ops_on_io_tiles: Annotated[
        bool,
        Attribute(
            "infeeds run during the passes, one time-step before, and outfeeds one time-step after; Grouped only"
        ),
    ] = Field(
        default=False,
        description="whether feeds run on these tiles during the passes: infeeds one time-step before, outfeeds one "
        "time-step after (grouped only)",
    )
    available_memory_proportion: Annotated[
        float,
        Attribute(
            "share of the tiles' memory for the feeds; if the feeds need more, no feed is placed and all tiles compute"
        ),
        Field(
            gt=0,
            le=1,
            description="share of these tiles' memory for the feeds; if the feeds need more, all tiles compute",
        ),
    ] = float(AVAILABLE_MEMORY_PROPORTION)


class PoplarOptionsSpec(Node, title="poplar_options"):
    """Poplar's options of matrix products or convolutions."""

    availableMemoryProportion: Annotated[float, Field(gt=0, le=1)] | None = Field(  # noqa: N815 - Poplar's own name
        default=None,
        description="maximum share of an IPU's memory for temporary data of one product; default: PopLibs', 0.6",
    )
    partialsType: Annotated[Literal["half", "float"], Choice(tuple(PARTIALS_BYTES))] | None = Field(  # noqa: N815
        default=None, description="type of a product's partial sums; default: PopLibs', float"
    )


class OperationsSpec(Node, title="operations"):
    """Settings of matrix products or convolutions in all stages."""

    poplar_options: Annotated[
        PoplarOptionsSpec,
        Attribute("availableMemoryProportion and partialsType of these operations in stages without their own options"),
    ] = Field(
        default_factory=PoplarOptionsSpec, description="options of these operations in stages without their own options"
    )


class SystemSpec(Node, title="system"):
    """Machine, and the IPUs of the program."""

    name: Annotated[str, Choice(lambda: MACHINES)] = Field(
        description="the machine; `ipusim devices NAME` lists its devices"
    )
    auto_select_ipus: Annotated[
        int | None,
        Attribute("number of IPUs of the device, a power of two; IPUs beyond the device mapping run replicas"),
    ] = Field(
        default=None,
        ge=1,
        le=max(machine.count for machine in MACHINES.values()),
        description="number of IPUs of the device, a power of two; default: the smallest number that holds the device "
        "mapping; with k times this number, the program runs as k replicas",
    )
    select_ipus: Annotated[
        int | None,
        Attribute("id of the device in the machine's listing; one program runs, so one id"),
        Field(ge=0, le=1023, description="id of the device in the machine's listing; default: the first that fits"),
    ] = None
    selection_order: Annotated[str, Choice(("AUTO", *ORDERS)), Attribute("AUTO, ZIGZAG, SNAKE or HOOF")] = Field(
        default="AUTO", description="order of the physical IPUs by logical IPU"
    )
    sync_replicas_independently: bool = Field(
        default=False,
        description="whether replicas wait for each other only before a weight update, or after every time-step too; "
        "default: after every time-step",
    )
    clock: Hertz | None = Field(default=None, description="tile clock; default: the generation's")
    overhead: Seconds | None = Field(
        default=None,
        description="fixed time of a superstep with copies between IPUs, in addition to sync and hops; default: as "
        "measured",
    )
    host: HostSpec = Field(default_factory=HostSpec, description="rates of the host; default: the machine's")
    enable_remote_buffers: Annotated[
        bool,
        Attribute(
            "whether variables may lie in Streaming Memory, if the machine has Streaming Memory",
            name="device_connection.enable_remote_buffers",
        ),
    ] = Field(default=False, description="whether programs may keep variables in Streaming Memory")
    streaming_memory: StreamingMemorySpec = Field(
        default_factory=StreamingMemorySpec,
        description="the Streaming Memory of each four IPUs; default: the machine's",
    )
    io_tiles: IoTilesSpec = Field(default_factory=IoTilesSpec, description="tiles for host copies; default: none")
    matmuls: OperationsSpec = Field(
        default_factory=OperationsSpec,
        description="options of the planner of matrix products; without effect on stages with given cycles",
    )
    convolutions: OperationsSpec = Field(
        default_factory=OperationsSpec,
        description="options of the planner of convolutions; without effect on stages with given cycles",
    )
    minimum_remote_tensor_size: Annotated[Bytes, Attribute(name="optimizations.minimum_remote_tensor_size")] = Field(
        default=MINIMUM_REMOTE_TENSOR_SIZE,
        description="number of elements below which a tensor of the optimizer's state is not offloaded",
    )
    minimum_sharded_elements: int = Field(
        default=MINIMUM_SHARDED_ELEMENTS,
        ge=1,
        le=2**31 - 1,
        description="number of elements below which each replica updates a whole variable under "
        "`replicated_optimizer_state_sharding`, if `host.framework` is popart or pytorch (PopART's "
        "minElementsForReplicatedTensorSharding)",
    )
    maximum_cross_replica_sum_buffer_size: Annotated[
        BufferBytes | None,
        Attribute(
            "bytes of an IPU's gradients that replicas collect and then sum together, IPU after IPU; in this option 0, "
            "the default, sums all gradients of all IPUs at once; in a scenario 0 sums each variable separately",
            name="optimizations.maximum_cross_replica_sum_buffer_size",
        ),
    ] = Field(
        default=None,
        description="bytes of an IPU's gradients that replicas collect and then sum together, IPU after IPU; 0: the "
        "gradients of each variable separately; all: the gradients of all IPUs at once; replicas that update parts of "
        "variables collect gradients only if all; default: 0 if `host.framework` is popart or pytorch, which merge "
        "no gradients by default, else all",
    )

    @property
    def clock_hz(self) -> int:
        """Tile clock in hertz, for converting times to cycles; a GC200's clock on the free machine."""
        return self.clock or find_machine(self.name).ipu.clock_hz
