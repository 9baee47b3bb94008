"""Losses divided by the batch of all hosts that train together."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.distribution import replicas_in_sync
from ipusim.ipu.each_loss import EachLoss
from ipusim.ipu.tensorflow.array_functions import reduce_mean, reduce_sum, tensor


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: int | None = None) -> Any:
    """Return the sum of the losses of a batch, divided by the batch of all hosts of the strategy whose scope it is in.

    Without weights and a given batch it is the mean over this host's samples, divided by the hosts.

    Arguments:
        per_example_loss: (batch, ...), whose first axis has the samples.
        sample_weight: a factor of each sample, or of all.
        global_batch_size: by default this host's batch times the hosts.

    Raises ProgramTypeError and ProgramError for a batch that is no whole number from 1 up.
    """
    hosts = replicas_in_sync()
    losses = per_example_loss if isinstance(per_example_loss, EachLoss) else tensor(per_example_loss)
    given = None if global_batch_size is None else checks.whole("global_batch_size", global_batch_size, 1)
    if not losses.ndim:
        checks.wrong_value("per_example_loss", "a loss of each sample of a batch", per_example_loss)
    samples = losses.shape[0]
    if sample_weight is None and given in (None, hosts * samples) and losses.ndim == 1:
        mean = reduce_mean(losses)
        return mean if hosts == 1 else mean * mean.dtype.type(1 / hosts)
    weighted = losses if sample_weight is None else losses * tensor(sample_weight)
    total = reduce_sum(weighted)
    return total / total.dtype.type(given or hosts * samples)
