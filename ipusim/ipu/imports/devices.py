"""TensorFlow's lists of devices, with the IPU devices of the program's configuration."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.devices import device_count
from ipusim.ipu.runtime.program_state import configured

tf = load()

#: Module of ``list_local_devices``.
_DEVICE_LIB: Final = import_module("tensorflow.python.client.device_lib")
#: TensorFlow's type of IPU devices.
_DEVICE_TYPE: Final = "IPU"


def _ordinals(device_type: str | None) -> range:
    """Return the ordinals of the IPU devices that a list of a device type has; an unconfigured program has one."""
    if device_type not in (None, _DEVICE_TYPE):
        return range(0)
    config = configured()
    return range(1 if config is None else max(1, device_count(config)))


def list_physical_devices(device_type: str | None = None) -> list[Any]:
    """Return the physical devices of a type, by default of all types."""
    ipus = [
        tf.config.PhysicalDevice(f"/physical_device:IPU:{ordinal}", _DEVICE_TYPE) for ordinal in _ordinals(device_type)
    ]
    return [*tf.config.list_physical_devices(device_type), *ipus]


def list_logical_devices(device_type: str | None = None) -> list[Any]:
    """Return the logical devices of a type, by default of all types."""
    ipus = [tf.config.LogicalDevice(f"/device:IPU:{ordinal}", _DEVICE_TYPE) for ordinal in _ordinals(device_type)]
    return [*tf.config.list_logical_devices(device_type), *ipus]


def list_local_devices(session_config: Any = None) -> list[Any]:
    """Return the attributes of all devices."""
    devices: list[Any] = _DEVICE_LIB.list_local_devices(session_config)
    attributes_class = type(devices[0])
    return [
        *devices,
        *(attributes_class(name=f"/device:IPU:{ordinal}", device_type=_DEVICE_TYPE) for ordinal in _ordinals(None)),
    ]
