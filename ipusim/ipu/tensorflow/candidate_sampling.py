"""``tf.random.log_uniform_candidate_sampler``: classes drawn for a loss of some of them."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.names import scope, unique
from ipusim.ipu.operations.candidates import LogUniformCandidates
from ipusim.ipu.tensorflow.array_functions import whole_numbers
from ipusim.ipu.tensorflow.seeds import seed_of
from ipusim.model.functions.operation_call import operate_without_gradient
from ipusim.model.functions.variables import draw_key


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return classes drawn, and how often the true ones, (batch, num_true), and those drawn are expected.

    In training others are drawn for each micro-batch. Raises ProgramError for more classes than there are, and for
    true ones that do not fit.
    """
    found = whole_numbers("true_classes", true_classes)
    if found.ndim != 2 or found.shape[1] != num_true:
        checks.wrong_value("true_classes", f"a tensor of shape (batch, {num_true})", found.shape)
    classes, count = checks.whole("range_max", range_max, 1), checks.whole("num_sampled", num_sampled, 1)
    if checks.truth("unique", unique) and count > classes:
        checks.wrong_value("num_sampled", f"at most range_max, {classes}, where each is drawn once", count)
    called = scope().prefix + _unique("log_uniform_candidates")
    key = draw_key(called) or (seed_of(seed),)
    operation = LogUniformCandidates(count, classes, unique, key if seed is None else (*key, seed))
    sampled, expected, sampled_expected = operate_without_gradient(operation, found)
    return sampled, expected, sampled_expected


_unique = unique
