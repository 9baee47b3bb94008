"""Reductions over tiles: what they take beyond two compute sets, by PopLibs' benchmark rows, and which layers have any.

Rows are of PopLibs' tests/benchmark_results.csv before 3a650a11, with shapes and tiles of its tests/CMakeLists.txt.
"""

import statistics
from dataclasses import replace
from fractions import Fraction

import pytest

from ipusim.api import VectorWork, Work, hardware, layers
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.model.learning.adaptive_optimizers import LAMB, LARS
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import SGD
from ipusim.pricing.passes import leaf_cycles, leaves

#: Elements in half precision, tiles if not all, and cycles on a GC2 and on a GC200.
ROWS = {
    "bert_reduce_0, maximum of a softmax": (131_072, 1024, 1466, 1466),
    "bert_reduce_1, sum of a softmax": (131_072, 1024, 1882, 1882),
    "bert_reduce_2, mean of a norm": (131_072, 1024, 2758, 2758),
    "bert_reduce_3, power of a norm": (131_072, 1024, 2758, 2758),
    "bert_reduce_4, gradients of a norm's parameters": (262_144, None, 2446, 2587),
    "resnet50_tr_bs1_cnv_reduce": (802_816, None, 3232, 3040),
    "resnet50_tr_bs1_bm64L0A0_reduce": (200_704, 1200, 2811, 2811),
    "resnet50_tr_bs1_bm128L0A0_reduce": (100_352, None, 2611, 2536),
    "resnet50_tr_bs1_bm128L0_reduce": (401_408, None, 3125, 3357),
}


def two_compute_sets(elements, tiles, chip):
    """Return the cycles of a reduction by its two compute sets, exchange and arithmetic alone."""
    ipu = hardware.find_ipu(chip)
    work = Work(
        vector=VectorWork(reductions=elements),
        sram_bytes=2 * elements,
        exchange_bytes=2 * elements,
        itemsize=2,
        compute_sets=2,
    )
    return int(leaf_cycles(work, replace(ipu, tiles=tiles or ipu.tiles), DEFAULT_RATES))


def test_the_rate_is_the_median_of_what_poplibs_rows_need_in_addition():
    more = [
        cycles - two_compute_sets(elements, tiles, chip)
        for elements, tiles, *both in ROWS.values()
        for chip, cycles in zip(("GC2", "GC200"), both, strict=True)
    ]
    (rate,) = (rate for rate in hardware.RATES if rate.name == "tile_reduction_cycles")
    assert statistics.median(more) == pytest.approx(float(rate.default), rel=0.01)
    low, high = rate.plausible
    assert sum(low <= cycles <= high for cycles in more) >= 0.75 * len(more)


def test_a_reduction_takes_the_rate_for_each_whatever_its_size():
    work = Work(vector=VectorWork(reductions=64), compute_sets=4, tile_reductions=2)
    ipu, rates = hardware.find_ipu("BOW"), DEFAULT_RATES.with_values(tile_reduction_cycles=Fraction(0))
    assert leaf_cycles(work, ipu, DEFAULT_RATES) - leaf_cycles(work, ipu, rates) == 2500


#: Layers, their input, and reductions of the forward and of the backward pass.
LAYERS = {
    "a mean and a power share their sets; the gradients of x, and of both parameters": (
        layers.LayerNorm(),
        (8, 16),
        (1, 2),
    ),
    "a bias": (layers.Dense(4), (16,), (0, 1)),
    "no bias": (layers.Dense(4, use_bias=False), (16,), (0, 0)),
    "maximum and sum of a softmax, its backward sum, and both sums for biases": (
        layers.MultiHeadAttention(2),
        (8, 16),
        (2, 3),
    ),
    "maximum, sum and mean": (layers.SoftmaxCrossEntropy(), (10,), (3, 0)),
    "positions": (layers.PositionEmbedding(), (8, 16), (0, 1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_count_their_reductions(name):
    layer, shape, expected = LAYERS[name]
    cost = layer.cost(shape, 4, 2)
    passes = cost.forward, cost.backward
    assert tuple(sum(work.tile_reductions for work in leaves((each,))) for each in passes) == expected
    halves = cost.halves.input, cost.halves.weights
    assert sum(work.tile_reductions for work in leaves(halves)) == expected[1]


def test_norms_of_updates_and_of_clipped_gradients_are_reductions():
    assert SGD(0.1).work(1000, 2).tile_reductions == 0
    assert LAMB(0.1).work(1000, 2).tile_reductions == LARS(0.1, 0.9).work(1000, 2).tile_reductions == 1
    assert GradientMap(clip_by_norm=1.0).work(1000, 2).tile_reductions == 1
    assert GradientMap(clip_by_value=1.0).work(1000, 2).tile_reductions == 0
