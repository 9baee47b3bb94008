"""ipusim: a discrete-event simulator of pipeline execution on Graphcore IPUs."""

__version__ = "0.1.0"
