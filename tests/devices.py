"""A configured device for the time of a call."""

from __future__ import annotations

import contextvars

from ipusim.ipu import config


def on(ipus, function):
    """Run a function where a device is configured, and leave nothing behind."""

    def configured():
        device = config.IPUConfig()
        device.auto_select_ipus = ipus
        device.configure_ipu_system()
        return function()

    return contextvars.copy_context().run(configured)
