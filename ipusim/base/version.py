"""The version of ipusim."""

__version__ = "0.1.0"
