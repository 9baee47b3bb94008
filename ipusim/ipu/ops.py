"""The package ``ipu.ops`` of Graphcore's API: modules of operations, which stand above it too."""

from __future__ import annotations

from ipusim.ipu.runtime.offered import rows

__getattr__, __dir__ = rows(
    __name__,
    {
        name: f"ipusim.ipu.{name}"
        for name in (
            *("all_to_all_op", "cross_replica_ops", "custom_ops", "embedding_ops", "functional_ops", "image_ops"),
            *("internal_ops", "math_ops", "nn_ops", "normalization_ops", "pipelining_ops", "rand_ops"),
            *("reduce_scatter_op", "replication_ops", "rnn_ops", "slicing_ops", "statistics_ops"),
        )
    },
)
