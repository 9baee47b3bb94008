"""Scopes in Graphcore's names: the device, the shard or the host that computations run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipusim.api import functions
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.building import on_ipu, shard
from ipusim.ipu.runtime.devices import device_ordinal, on_device, ordinal_of
from ipusim.ipu.runtime.loop_body import body_record
from ipusim.ipu.runtime.names import in_stage


@contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Build programs in the block for a device such as '/device:IPU:1'; a name of the host changes nothing.

    What is computed of placeholders there, without ``ipu_compiler.compile``, a session computes on that device.

    Raises ProgramTypeError for what is no text, ProgramError for an IPU device without a number, and
    UnsupportedProgramError in a function of a program that runs on another IPU device.
    """
    ordinal = ordinal_of(device)
    if ordinal is None:
        with on_ipu.set_to(False):
            yield
        return
    if in_stage() and ordinal != device_ordinal():
        raise UnsupportedProgramError(
            f"device: expected /device:IPU:{device_ordinal()}, on which this program runs as a whole, got {device!r}: "
            "build what another device runs as a program by itself, in the scope of that device"
        )
    with on_device(ordinal), on_ipu.set_to(True):
        yield


@contextmanager
def ipu_shard(index: int | list[int]) -> Iterator[None]:
    """Place computations in the block on an IPU of a sharded program; raises ProgramError for a number below 0."""
    value = index[0] if isinstance(index, list) and len(index) == 1 else index
    if isinstance(value, list):
        raise UnsupportedProgramError(f"index: expected one IPU, got {value}")
    with shard.set_to(checks.whole("index", value)):
        if (record := body_record()) is not None:
            record.shards.add(value)
        yield


@contextmanager
def ipu_jit_scope(ipu_scope: object) -> Iterator[None]:
    """Compile what is in the block together.

    Without effect: all of a program is compiled together anyway.
    """
    yield


@contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: object = None) -> Iterator[None]:
    """Set an attribute of the compiler's, which has no effect here; raises ProgramTypeError for what is no text."""
    checks.text("attribute_name", attribute_name)
    checks.text("attribute_value", attribute_value)
    yield


@contextmanager
def stochastic_rounding(override: object) -> Iterator[None]:
    """Round what is in the block as ``override`` says.

    Without effect: stochastic rounding changes no time, and NumPy rounds to nearest.
    """
    checks.truth("override", override)
    yield


@contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Refuse another type of partial sums than float32 in the block: a stage's options say that.

    Raises UnsupportedProgramError.
    """
    if checks.dtype("override_type", override_type).itemsize != 4:
        raise UnsupportedProgramError(
            "partials_type: expected float32, got float16: give partialsType in PipelineStageOptions or in "
            "IPUConfig.matmuls.poplar_options"
        )
    yield


@contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Run the operations in the block on the host, in the middle of a stage's passes, and their gradients as well.

    What the block takes from the IPU goes there once in each pass, and what is used of it outside comes back: variables
    among it, which stay on the IPU, and the gradients of both. Meanwhile the IPU waits. A block inside of another one
    is a part of it; outside of programs, where the host computes anyway, a block changes nothing.

    Raises ProgramTypeError for what is no text, ModelError for replicas that do something together in the block, and
    for a look-up in a table on the host.
    """
    with functions.on_host(checks.text("name", name)):
        yield
