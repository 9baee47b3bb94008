"""Configurations of estimators in Graphcore's names, whose cluster is TensorFlow's."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import ipu_run_config
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_run_config import IPURunConfig

__all__ = ["IPURunConfig", "RunConfig"]

tf = load()


class RunConfig(ipu_run_config.RunConfig):
    """How estimators run, with the cluster that the environment describes."""

    @property
    def cluster_spec(self) -> Any:  # type: ignore[override]
        """The cluster, as a ``tf.train.ClusterSpec``."""
        return tf.train.ClusterSpec(dict(super().cluster_spec))
