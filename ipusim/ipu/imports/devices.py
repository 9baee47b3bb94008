"""TensorFlow's lists of devices, with the IPU devices of the program's configuration."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.devices import device_count
from ipusim.ipu.runtime.program_state import configured

tf = load()

_LIBRARY: Final = import_module("tensorflow.python.client.device_lib")
_KIND: Final = "IPU"


def _ordinals(device_type: str | None) -> range:
    """Return the ordinals of the listed IPU devices; without a configuration there is one device."""
    listed = device_type in (None, _KIND)
    return range(max(1, 0 if configured() is None else device_count(configured())) * listed)


def list_physical_devices(device_type: str | None = None) -> list[Any]:
    """Return the physical devices of a type, by default of all types."""
    ipus = [tf.config.PhysicalDevice(f"/physical_device:IPU:{ordinal}", _KIND) for ordinal in _ordinals(device_type)]
    return [*tf.config.list_physical_devices(device_type), *ipus]


def list_logical_devices(device_type: str | None = None) -> list[Any]:
    """Return the logical devices of a type, by default of all types."""
    ipus = [tf.config.LogicalDevice(f"/device:IPU:{ordinal}", _KIND) for ordinal in _ordinals(device_type)]
    return [*tf.config.list_logical_devices(device_type), *ipus]


def list_local_devices(session_config: Any = None) -> list[Any]:
    """Return the attributes of all devices."""
    devices: list[Any] = _LIBRARY.list_local_devices(session_config)
    kind = type(devices[0])
    return [*devices, *(kind(name=f"/device:IPU:{ordinal}", device_type=_KIND) for ordinal in _ordinals(None))]
