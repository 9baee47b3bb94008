"""Scale the cycles of passes by slow IPUs and by jitter, exactly, for K sets of durations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.hardware.jitter import BLOCK, PARTS, Draws, drawn_parts
from ipusim.hardware.system import System
from ipusim.timeline.kinds import KIND_OF_PASS

Cycles = npt.NDArray[np.int64]
#: Products of cycles and factors from this size on use Python's integers.
_LEAST_WIDE_PRODUCT: Final = 2**62


def scaled_cycles(
    cycles: Cycles,
    instructions: Cycles,
    system: System,
    execution: int,
    *,
    slower: Mapping[int, Fraction],
    jitters: Sequence[tuple[Draws, int | None]],
    seeds: Cycles | None,
) -> Cycles:
    """Return the cycles of passes under slowing and jitter, shape (passes, replicas, K).

    Args:
        cycles: priced cycles, shape (passes, 1, K).
        instructions: rows of the passes among the Plan's instructions.
        system: the device.
        execution: number of the execution.
        slower: slowing factor per slow logical IPU.
        jitters: random draws of pass durations, each with the affected IPU; None for every IPU.
        seeds: seeds of the jitters, shape (K, jitters); None for the jitters' seeds.
    """
    shards, code, stage, micro_batch, _ = instructions.T
    ipus = np.arange(system.replicas) * system.shards + shards[:, np.newaxis]
    numerator, denominator = np.ones((*ipus.shape, 1), object), np.ones((*ipus.shape, 1), object)
    for ipu, factor in slower.items():
        numerator[ipus == ipu], denominator[ipus == ipu] = factor.numerator, factor.denominator
    groups = _rows_by_value(np.column_stack([shards, code, stage]))
    for number, (draws, only_ipu) in enumerate(jitters):
        seed_values = [draws.seed] if seeds is None else seeds[:, number].tolist()
        jitter_factors = np.full((*ipus.shape, len(seed_values)), PARTS, np.int64)
        for group in groups:
            kind, stage_number = int(KIND_OF_PASS[code[group[0]]]), int(stage[group[0]])
            blocks, block = np.unique(micro_batch[group] // BLOCK, return_inverse=True)
            for replica, ipu in enumerate(ipus[group[0]].tolist()):
                if only_ipu in (None, ipu):
                    keys = (
                        (seed, ipu, kind, stage_number, execution, block_number)
                        for seed in seed_values
                        for block_number in blocks.tolist()
                    )
                    parts = drawn_parts(keys, draws.deviation).reshape(len(seed_values), len(blocks), BLOCK)
                    jitter_factors[group, replica] = parts[:, block, micro_batch[group] % BLOCK].T
        numerator, denominator = _products(numerator, jitter_factors), denominator * PARTS
    return _ceiling(cycles, numerator, denominator)


def _rows_by_value(columns: Cycles) -> list[Cycles]:
    """Return the numbers of equal rows, an array per distinct row."""
    order = np.lexsort(columns.T)
    begins = np.flatnonzero(np.any(np.diff(columns[order], axis=0) != 0, axis=1)) + 1
    return np.split(order, begins) if len(order) else []


def _products(left: npt.NDArray[Any], right: Cycles) -> npt.NDArray[Any]:
    """Return products of integers, in 64 bits if wide enough."""
    is_wide = int(left.max(initial=1)) * int(right.max(initial=1)) >= _LEAST_WIDE_PRODUCT
    return left * right.astype(object) if is_wide else left.astype(np.int64) * right


def _ceiling(cycles: Cycles, numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> Cycles:
    """Return cycles times a quotient, rounded up."""
    if (
        int(cycles.max(initial=0)) * int(numerator.max(initial=1)) < _LEAST_WIDE_PRODUCT
        and denominator.max(initial=1) < _LEAST_WIDE_PRODUCT
    ):
        return -(-cycles * numerator.astype(np.int64) // denominator.astype(np.int64))
    exact: Cycles = (-(-cycles.astype(object) * numerator // denominator)).astype(np.int64)
    return exact
