"""System section of a request: machine, device, host and Streaming Memory."""

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

    infeed: BytesPerSecond | None = Field(default=None, description="rate at which an IPU reads from the host's buffer")
    host_fill: HostBytesPerSecond | None = Field(
        default=None, description="rate at which the host writes that buffer, of one IPU"
    )
    data_rate: HostBytesPerSecond | None = Field(
        default=None,
        description="rate at which the host makes samples, of which the infeeds of all its replicas get equal shares; "
        "`ipu.dataset_benchmark` measures that of a dataset; default: no limit",
    )
    outfeed: BytesPerSecond | None = Field(default=None, description="rate at which an IPU writes to the host's buffer")
    host_drain: HostBytesPerSecond | None = Field(default=None, description="rate at which the host reads that buffer")
    network: BytesPerSecond | None = Field(default=None, description="rate between two hosts, in either direction")
    count: Annotated[int, Ge(1), Le(1024)] = Field(
        default=1,
        description="hosts that train together, each with a device like this one and a share of the data; before each "
        "weight update gradients go to the hosts, which sum them up over their network",
    )
    sum_over: Annotated[str, Choice(("network", "links"))] = Field(
        default="network",
        description="what sums up gradients over the hosts: the hosts, over their network, or the IPUs, over the links "
        "and gateways of the smallest machine that holds all of them",
    )
    framework: Annotated[str, Choice(FRAMEWORKS)] | None = Field(
        default=None,
        description="whose host code runs between session runs, each of `repeat_count` executions; its time is a rate, "
        "such as `rates.session_run` and `rates.offchip_state`; default: none is counted",
    )
    updates_optimizer: Annotated[int, SessionRuns()] | None = Field(
        default=None,
        description="how often the program sends its optimizer's values anew, as with PopTorch's `setOptimizer` or "
        "PopART's `updateOptimizerFromHost`; a framework's host takes `rates.optimizer_value` for each variable then, "
        "which counts in equal parts behind each session run; default: every session run, but never with tensorflow1",
    )


class StreamingMemorySpec(Node, title="streaming memory"):
    """Figures of the Streaming Memory that replace the machine's."""

    bandwidth: BytesPerSecond | None = Field(
        default=None, description="bandwidth of one machine's memory, for its four IPUs together; default: assumed"
    )
    ipu_bandwidth: BytesPerSecond | None = Field(
        default=None, description="what the link of one IPU to the memory carries; default: PCIe Gen4 x8"
    )
    capacity: MachineBytes | None = Field(default=None, description="size of one machine's memory; default: 256 GB")


class IoTilesSpec(Node, title="io_tiles"):
    """Tiles of each IPU for copies from and to the host, in parallel with computation."""

    num_io_tiles: Annotated[int, Attribute("tiles of each IPU that neither compute nor hold the program's memory")] = (
        Field(default=0, ge=0, le=1024, description="tiles that compute nothing")
    )
    place_ops_on_io_tiles: Annotated[
        bool, Attribute("feeds run beside the passes, one time-step ahead and behind; Grouped only")
    ] = Field(default=False, description="whether the feeds run on them, one time-step ahead and behind (grouped only)")
    available_memory_proportion: Annotated[
        float,
        Attribute("share of the tiles' memory for the feeds; with more to place, nothing is, and all tiles compute"),
        Field(gt=0, le=1, description="share of their memory for the feeds; with more to place, all tiles compute"),
    ] = float(AVAILABLE_MEMORY_PROPORTION)


class PoplarOptionsSpec(Node, title="poplar_options"):
    """Options of one kind of operations."""

    availableMemoryProportion: Annotated[float, Field(gt=0, le=1)] | None = Field(  # noqa: N815 - Poplar's own name
        default=None,
        description="share of an IPU's memory that a product may take for itself while it runs; default: PopLibs', 0.6",
    )
    partialsType: Annotated[Literal["half", "float"], Choice(tuple(PARTIALS_BYTES))] | None = Field(  # noqa: N815
        default=None, description="type of a product's partial sums; default: PopLibs', float"
    )


class OperationsSpec(Node, title="operations"):
    """Planning of a kind of operations in all stages."""

    poplar_options: Annotated[
        PoplarOptionsSpec,
        Attribute("availableMemoryProportion and partialsType of these operations in stages that give none"),
    ] = Field(default_factory=PoplarOptionsSpec, description="options of those whose stage does not give its own")


class SystemSpec(Node, title="system"):
    """Machine, and the IPUs of the program."""

    name: Annotated[str, Choice(lambda: MACHINES)] = Field(
        description="the machine; `ipusim devices NAME` lists its devices"
    )
    auto_select_ipus: Annotated[
        int | None, Attribute("size of the device, a power of two; more IPUs than the stages take run replicas")
    ] = Field(
        default=None,
        ge=1,
        le=max(machine.count for machine in MACHINES.values()),
        description="IPUs of the device, a power of two; default: as few as hold the device mapping; with k "
        "times as many, the program runs as k replicas",
    )
    select_ipus: Annotated[
        int | None,
        Attribute("id of the device in the machine's listing; one program runs, so one id"),
        Field(ge=0, le=1023, description="id of the device in the machine's listing; default: the first that fits"),
    ] = None
    selection_order: Annotated[str, Choice(("AUTO", *ORDERS)), Attribute("AUTO, ZIGZAG, SNAKE or HOOF")] = Field(
        default="AUTO", description="how logical IPUs are laid over the physical ones"
    )
    sync_replicas_independently: bool = Field(
        default=False,
        description="whether replicas wait for each other only before a weight update; default: after every time-step",
    )
    clock: Hertz | None = Field(default=None, description="tile clock; default: the generation's")
    overhead: Seconds | None = Field(
        default=None,
        description="fixed time of a superstep that exchanges between IPUs, beside sync and hops; default: as measured",
    )
    host: HostSpec = Field(default_factory=HostSpec, description="rates of the host; default: the machine's")
    enable_remote_buffers: Annotated[
        bool,
        Attribute(
            "whether variables may lie in Streaming Memory, where the machine has it",
            name="device_connection.enable_remote_buffers",
        ),
    ] = Field(default=False, description="whether programs may keep variables in Streaming Memory")
    streaming_memory: StreamingMemorySpec = Field(
        default_factory=StreamingMemorySpec, description="the memory beside every four IPUs; default: the machine's"
    )
    io_tiles: IoTilesSpec = Field(default_factory=IoTilesSpec, description="tiles for host copies; default: none")
    matmuls: OperationsSpec = Field(
        default_factory=OperationsSpec, description="how matrix products are planned, where cycles are not given"
    )
    convolutions: OperationsSpec = Field(default_factory=OperationsSpec, description="the same of convolutions")
    minimum_remote_tensor_size: Annotated[Bytes, Attribute(name="optimizations.minimum_remote_tensor_size")] = Field(
        default=MINIMUM_REMOTE_TENSOR_SIZE, description="smaller tensors of the optimizer's state are not offloaded"
    )
    minimum_sharded_elements: int = Field(
        default=MINIMUM_SHARDED_ELEMENTS,
        ge=1,
        le=2**31 - 1,
        description="smaller variables are updated whole by each replica under `replicated_optimizer_state_sharding` "
        "where `host.framework` is popart or pytorch (PopART's minElementsForReplicatedTensorSharding)",
    )
    maximum_cross_replica_sum_buffer_size: Annotated[
        BufferBytes | None,
        Attribute(
            "bytes of an IPU's gradients that wait until replicas sum them up together, IPU after IPU; 0, the default "
            "there, stands for all gradients of all IPUs at once, and in a scenario for a sum of each variable",
            name="optimizations.maximum_cross_replica_sum_buffer_size",
        ),
    ] = Field(
        default=None,
        description="gradients of an IPU wait until they have so many bytes, and replicas sum them up together, IPU "
        "after IPU; 0: each variable's by themselves; all: those of all IPUs at once; default: 0 where "
        "`host.framework` is popart or pytorch, which merge none unless told, else all",
    )

    @property
    def clock_hz(self) -> int:
        """Tile clock in hertz, for converting times to cycles; a GC200's clock on the free machine."""
        return self.clock or find_machine(self.name).ipu.clock_hz
