"""Choose device, shard or host for the computations in a block: Graphcore's ``scopes``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.host_scopes import SCOPE, scope_text
from ipusim.ipu.graph.split import SHARD
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import builds_program, device_ordinal, on_device, ordinal_of
from ipusim.ipu.runtime.host_block import host_block

tf = load()
#: Name of the operation attribute that holds the attributes of the XLA compiler.
_FRONTEND: Final = "_XlaFrontendAttributes"


@contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Build the block's programs for a device.

    Args:
        device: name of the device, such as ``/device:IPU:1``; a name of the host changes nothing.

    Raises:
        ProgramTypeError: unless device is text.
        ProgramError: if an IPU device has no number.
        UnsupportedProgramError: if the block belongs to a program on another IPU device.
    """
    ordinal = ordinal_of(device)
    if ordinal is not None and builds_program() and ordinal != device_ordinal():
        raise UnsupportedProgramError(
            f"device: expected /device:IPU:{device_ordinal()}, on which this program runs as a whole, got {device!r}: "
            "build the part for another device as a separate program, in the scope of that device"
        )
    with on_device(device_ordinal() if ordinal is None else ordinal):
        yield


@contextmanager
def ipu_shard(index: int | list[int]) -> Iterator[None]:
    """Place the block's operations on an IPU of a sharded program.

    Args:
        index: number of the IPU, or a list of one number.

    Raises:
        ProgramError: if index is below 0.
        UnsupportedProgramError: if index is a list of several numbers.
    """
    value = index[0] if isinstance(index, list) and len(index) == 1 else index
    if isinstance(value, list):
        raise UnsupportedProgramError(f"index: expected one IPU, got {value}")
    attribute = tf.compat.v1.AttrValue(i=checks.whole("index", value))
    with tf.compat.v1.get_default_graph()._attr_scope({SHARD: attribute}):
        yield


@contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Run the block's operations and gradients on the host, during a stage's passes.

    In every pass, the block's inputs go to the host and its outputs return to the IPU, which waits meanwhile. Variables
    stay on the IPU. A nested block is a part of the outer block.

    Args:
        name: the block's name in traces.

    Raises:
        ProgramTypeError: unless name is text.
    """
    name, outer_block = checks.text("name", name), host_block()
    with host_block.set_to(outer_block or name):
        graph = tf.compat.v1.get_default_graph()
        if outer_block is not None:
            yield
            return
        text = scope_text(len(graph.get_operations()), name)
        with graph._attr_scope({SCOPE: tf.compat.v1.AttrValue(s=text.encode())}):
            yield


def device(name: str | Callable[..., Any] | None) -> AbstractContextManager[Any]:
    """Return a device's scope: TensorFlow's scope for the host, ``ipu_scope`` for an IPU.

    Args:
        name: device name as for ``tf.device``, such as ``/device:IPU:0``.
    """
    if isinstance(name, str) and ordinal_of(name) is not None:
        return ipu_scope(name)
    scope: AbstractContextManager[Any] = tf.device(name)
    return scope


@contextmanager
def ipu_jit_scope(ipu_scope: object) -> Iterator[None]:
    """Compile the block together.

    Without effect: a program is always compiled as a whole.
    """
    yield


@contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: object = None) -> Iterator[None]:
    """Set a compiler attribute for operations in the block.

    Programs read attributes with ``get_attr("_XlaFrontendAttributes")``. Attributes change no time, because only
    Graphcore's compiler interprets them.

    Args:
        attribute_name: name of the attribute.
        attribute_value: value of the attribute.
        restore_to: value after the block, unless the attribute had a value before.

    Raises:
        ProgramTypeError: unless an argument is text.
    """
    name, value = checks.text("attribute_name", attribute_name), checks.text("attribute_value", attribute_value)
    graph = tf.compat.v1.get_default_graph()
    previous = _frontend_attributes(graph)
    with graph._attr_scope(_as_attribute({**previous, name: value})):
        yield
    if restore_to is not None and name not in previous:
        graph._attr_scope_map.update(_as_attribute({**previous, name: checks.text("restore_to", restore_to)}))


def _frontend_attributes(graph: Any) -> dict[str, str]:
    """Return the current compiler attributes for new operations."""
    attributes = graph._attr_scope_map.get(_FRONTEND)
    return {} if attributes is None else dict(_attributes_class().FromString(attributes.s).map)


def _as_attribute(attributes: dict[str, str]) -> dict[str, Any]:
    """Return the operation attribute that holds compiler attributes, by name."""
    return {
        _FRONTEND: tf.compat.v1.AttrValue(s=_attributes_class()(map=attributes).SerializeToString(deterministic=True))
    }


def _attributes_class() -> Any:
    """Return the message class of compiler attributes."""
    return import_module("tensorflow.compiler.xla.xla_data_pb2").FrontendAttributes


@contextmanager
def stochastic_rounding(override: object) -> Iterator[None]:
    """Set the rounding of the block's operations to ``override``.

    Without effect: stochastic rounding changes no time, and NumPy rounds to nearest.
    """
    checks.truth("override", override)
    yield


@contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Refuse partial sums of another type than float32 in the block; raises UnsupportedProgramError.

    The type of partial sums is an option of a stage or of the IPUConfig.
    """
    if checks.dtype("override_type", override_type).itemsize != 4:
        raise UnsupportedProgramError(
            "partials_type: expected float32, got float16: give partialsType in PipelineStageOptions or in "
            "IPUConfig.matmuls.poplar_options"
        )
    yield
