"""Optimizers and gradient maps: values worked out element by element, state, cost, refusals."""

import math

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import MeanSquaredError
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.accumulating_optimizers import Adadelta, Adagrad, Ftrl
from ipusim.model.learning.adaptive_optimizers import LAMB, LARS, Adam, RMSProp
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import SGD, Momentum
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.work import MappingWork, VectorWork, Work

RATE, B1, B2 = 0.1, 0.9, 0.99


def trained(optimizer, start, gradients):
    parameters = {name: array.copy() for name, array in start.items()}
    state = optimizer.initial_state(parameters)
    for step in gradients:
        optimizer.apply(parameters, step, state)
    return parameters, state


def case(steps=4):
    rng = np.random.default_rng(0)
    start = {"a/W": rng.standard_normal((3, 2)), "a/b": rng.standard_normal(2)}
    return start, [{name: rng.standard_normal(array.shape) for name, array in start.items()} for _ in range(steps)]


@pytest.mark.parametrize("kind", [Adam, LAMB])
def test_moments_have_the_types_that_are_said(kind):
    """Of weights in half precision moments in single hold what half rounds to zero."""
    start = {"a/W": np.ones((3, 2), np.float16)}
    gradients = [{"a/W": np.full((3, 2), 1e-3, np.float16)}] * 3
    plain, wide = kind(0.1, epsilon=1e-3), kind(0.1, epsilon=1e-3, second_moment="float32")
    _, state = trained(plain, start, gradients)
    assert (state["a/W/m"].dtype, state["a/W/v"].dtype) == (np.float16, np.float16)
    assert not state["a/W/v"].any()
    parameters, state = trained(wide, start, gradients)
    assert (parameters["a/W"].dtype, state["a/W/m"].dtype, state["a/W/v"].dtype) == (np.float16, np.float16, np.float32)
    assert (state["a/W/v"] > 0).all()
    assert (plain.state_bytes(6, 2), wide.state_bytes(6, 2)) == (24, 36)
    for optimizer in (plain, wide, kind(0.1, first_moment="float32", second_moment="float32")):
        moved = optimizer.work(6, 2).sram_bytes - plain.work(6, 2).sram_bytes
        assert moved == 2 * (optimizer.state_bytes(6, 2) - 24)  # read and written
    assert wide.work(6, 2).itemsize == 4


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rmsprop_steps_over_the_root_of_the_mean_square(momentum, centered):
    """As sums over the steps: the mean square begins at one, and the steps before count momentum to some power."""
    start, gradients = case()
    parameters, _ = trained(RMSProp(RATE, 0.8, momentum, 1e-3, centered), start, gradients)
    for name in start:
        every, steps = [step[name] for step in gradients], []
        for t in range(4):
            weights = [0.2 * 0.8 ** (t - s) for s in range(t + 1)]
            square = 0.8 ** (t + 1) + sum(w * g**2 for w, g in zip(weights, every, strict=False))
            mean = sum(w * g for w, g in zip(weights, every, strict=False))
            steps.append(RATE * every[t] / np.sqrt(square - centered * mean**2 + 1e-3))
        right = start[name] - sum(step * sum(momentum**k for k in range(4 - t)) for t, step in enumerate(steps))
        np.testing.assert_allclose(parameters[name], right, rtol=1e-12)


def test_lamb_takes_a_ratio_of_one_where_a_norm_is_zero():
    zero, step = {"a/b": np.zeros(2)}, [{"a/b": np.array([3.0, -4.0])}]
    parameters, _ = trained(LAMB(RATE, B1, B2), zero, step)
    np.testing.assert_allclose(parameters["a/b"], [-RATE, RATE], rtol=1e-5)
    still, _ = trained(LAMB(RATE), {"a/b": np.ones(2)}, [{"a/b": np.zeros(2)}])
    np.testing.assert_array_equal(still["a/b"], np.ones(2))


def test_ftrl_divides_what_passes_l1_by_its_curvature():
    optimizer = Ftrl(RATE, l1=0.2, l2=0.1, beta=0.3)
    parameters, _ = trained(optimizer, {"a/W": np.zeros(2)}, [{"a/W": np.array([0.3, 0.05])}])
    right = -(0.3 - 0.2) / ((np.sqrt(0.1 + 0.3**2) + 0.3) / RATE + 2 * 0.1)
    np.testing.assert_allclose(parameters["a/W"], [right, 0], rtol=1e-12)


@pytest.mark.parametrize("kind", [Adam, LAMB])
def test_parameters_are_excluded_from_weight_decay_by_name(kind):
    start, gradients = case()
    plain, _ = trained(kind(RATE), start, gradients)
    decayed, _ = trained(kind(RATE, weight_decay=0.1), start, gradients)
    excluded, _ = trained(kind(RATE, weight_decay=0.1, exclude_from_weight_decay=("/b",)), start, gradients)
    np.testing.assert_array_equal(excluded["a/b"], plain["a/b"])
    np.testing.assert_array_equal(excluded["a/W"], decayed["a/W"])
    assert not np.array_equal(decayed["a/b"], plain["a/b"])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "optimizer",
    [
        *(SGD(RATE), Momentum(RATE, 0.9), Momentum(RATE, 0.9, True), Adam(RATE), LAMB(RATE), LARS(RATE, 0.9, eeta=0.5)),
        *(RMSProp(RATE, centered=True), Adagrad(RATE), Adadelta(1, epsilon=1e-3), Ftrl(RATE, -0.75, l2_shrinkage=0.1)),
    ],
)
def test_arrays_keep_their_dtype_and_place(optimizer, dtype):
    parameters = {"a/W": np.ones(3, dtype)}
    kept = parameters["a/W"]
    state = optimizer.initial_state(parameters)
    slots = dict(state)
    optimizer.apply(parameters, {"a/W": np.ones(3, dtype)}, state)
    assert parameters["a/W"] is kept
    assert kept.dtype == dtype
    assert (kept < 1).all()
    assert all(state[name] is slot for name, slot in slots.items())


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        *((SGD(1), 0), (Momentum(1, 0.9), 1), (Adam(1), 2), (LAMB(1), 2), (RMSProp(1), 2)),
        *((RMSProp(1, centered=True), 3), (Adagrad(1), 1), (Adadelta(1), 2), (Ftrl(1), 2), (LARS(1, 0.9), 1)),
    ],
)
def test_state_bytes_are_those_of_the_state(optimizer, slots):
    start, _ = case()
    state = optimizer.initial_state(start)
    assert optimizer.state_bytes(8, 8) == sum(array.nbytes for name, array in state.items() if name != "step")
    assert optimizer.state_bytes(1000, 2) == slots * 2000


@pytest.mark.parametrize(
    "optimizer",
    [
        *(Adam(RATE), LAMB(RATE, weight_decay=0.1), RMSProp(RATE, centered=True)),
        *(
            Adagrad(RATE),
            Adadelta(1),
            Ftrl(RATE),
            Ftrl(RATE, -0.75),
            Momentum(RATE, 0.5, True),
            LARS(RATE, 0.5, eeta=0.3),
        ),
    ],
)
def test_a_scalar_learns_as_an_element_does(optimizer):
    one, _ = trained(optimizer, {"w": np.array(2.0)}, [{"w": np.array(3.0)}] * 2)
    other, _ = trained(optimizer, {"w": np.array([2.0])}, [{"w": np.array([3.0])}] * 2)
    assert one["w"] == other["w"][0] != 2


def test_update_work_by_hand():
    assert LARS(1, 0.9).work(10, 4) == Work(vector=VectorWork(80, 20), sram_bytes=360, compute_sets=5)
    assert Adam(1).work(10, 4) == Work(vector=VectorWork(100, 0, 10, 10), sram_bytes=280, compute_sets=4)
    assert Adam(1, weight_decay=0.1).work(10, 4).vector == VectorWork(120, 0, 10, 10)
    assert RMSProp(1).work(10, 4) == Work(vector=VectorWork(90, 0, 10, 10), sram_bytes=280, compute_sets=3)
    assert Momentum(1, 0.9).work(10, 4) == Work(vector=VectorWork(40), sram_bytes=200, compute_sets=2)
    assert Momentum(1, 0.9, True).work(10, 4) == Work(vector=VectorWork(60), sram_bytes=240, compute_sets=2)
    assert Adagrad(1).work(10, 4) == Work(vector=VectorWork(40, 0, 10, 10), sram_bytes=200, compute_sets=2)
    assert Adagrad(1, epsilon=0.1).work(10, 4).vector == VectorWork(50, 0, 10, 10)
    assert Adadelta(1).work(10, 4) == Work(vector=VectorWork(130, 0, 10, 20), sram_bytes=280, compute_sets=3)
    assert Ftrl(1).work(10, 4) == Work(vector=VectorWork(130, 0, 10, 20), sram_bytes=280, compute_sets=3)
    assert Ftrl(1, l2_shrinkage=0.1).work(10, 4).vector == VectorWork(150, 0, 10, 20)
    centered = RMSProp(1, centered=True).work(10, 2)
    assert centered == Work(vector=VectorWork(140, 0, 10, 10), sram_bytes=180, itemsize=2, compute_sets=4)
    assert LAMB(1).work(10, 2) == Work(vector=VectorWork(140, 20, 10, 10), sram_bytes=180, itemsize=2, compute_sets=6)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        *(
            (lambda wrong=wrong: LARS(**{"learning_rate": 1, "momentum": 0.9} | wrong), "of 0 or more")
            for wrong in ({"eeta": -1}, {"epsilon": math.nan}, {"weight_decay": -0.1}, {"momentum": -1})
        ),
        (lambda: SGD(-0.1), "learning rate of 0 or more, got -0.1"),
        (lambda: Momentum(math.nan, 0.5), "learning rate of 0 or more, got nan"),
        (lambda: Momentum(0.1, math.inf), "momentum of 0 or more, got inf"),
        (lambda: Adam(-1), "learning rate of 0 or more, got -1"),
        (lambda: Adam(1, beta_1=1), "beta_1 from 0 and below 1, got 1"),
        (lambda: LAMB(1, beta_2=math.nan), "beta_2 from 0 and below 1, got nan"),
        (lambda: LAMB(1, epsilon=0), "epsilon above 0, got 0"),
        (lambda: RMSProp(-1), "learning rate of 0 or more, got -1"),
        (lambda: RMSProp(1, decay=1), "a decay from 0 and below 1, got 1"),
        (lambda: RMSProp(1, momentum=-1), "momentum of 0 or more, got -1"),
        (lambda: RMSProp(1, epsilon=math.nan), "epsilon above 0, got nan"),
        (lambda: Adagrad(1, -1), "initial accumulator of 0 or more, got -1"),
        (lambda: Adagrad(1, 0), "initial accumulator or an epsilon above 0, got 0 for both"),
        (lambda: Adadelta(1, 1), "a rho from 0 and below 1, got 1"),
        (lambda: Adadelta(1, epsilon=0), "epsilon above 0, got 0"),
        (lambda: Ftrl(0), "learning rate above 0, got 0"),
        (lambda: Ftrl(1, 0.5), "learning rate power of 0 or less, got 0.5"),
        (lambda: Ftrl(1, l1=-1), "l1 of 0 or more, got -1"),
        (lambda: Adam(1, weight_decay=-1), "weight decay of 0 or more, got -1"),
        (lambda: GradientMap(decay=-1), "decay of 0 or more, got -1"),
        (lambda: GradientMap(clip_by_norm=0), "clip by a norm above 0, got 0"),
        (lambda: GradientMap(clip_by_value=math.inf), "clip by a value above 0, got inf"),
    ],
)
def test_refused(action, message):
    with pytest.raises(ModelError, match=message):
        action()


def test_gradient_map_by_hand():
    gradient, variable = np.array([3.0, -4.0]), np.array([10.0, 0.0])
    assert GradientMap(clip_by_norm=10)(gradient, variable) is gradient
    np.testing.assert_allclose(GradientMap(clip_by_norm=1)(gradient, variable), [0.6, -0.8], rtol=1e-15)
    np.testing.assert_array_equal(GradientMap(clip_by_value=3.5)(gradient, variable), [3, -3.5])
    np.testing.assert_array_equal(GradientMap(decay=0.1)(gradient, variable), [4, -4])
    assert GradientMap(decay=0.1)(*np.ones((2, 1), np.float32)).dtype == np.float32
    # Decay first, then the value, then the norm.
    np.testing.assert_allclose(GradientMap(0.1, 3.0, 1.0)(gradient, variable), np.array([1, -1]) / np.sqrt(2))
    np.testing.assert_array_equal(gradient, [3, -4])


def test_a_map_is_work_of_every_backward_pass():
    network = Network((NamedLayer("d", Dense(3)),), (4,), NamedLayer("mse", MeanSquaredError()))
    (stage,) = build_stages(network, [network.names])
    plain = layer_profile(stage, 2, 4, optimizer=SGD(1)).backward
    clipped = layer_profile(stage, 2, 4, optimizer=SGD(1, GradientMap(0.1, 1.0, 1.0))).backward
    *passes, map_w, add_w, map_b, add_b = clipped
    assert (*passes, add_w, add_b) == plain
    for mapping, count in ((map_w, 12), (map_b, 3)):
        vector, moved = VectorWork(count * 6, count), 4 * count * 3
        assert mapping == MappingWork(vector=vector, sram_bytes=moved, compute_sets=1 + 1 + 3)
        assert mapping != Work(vector=vector, sram_bytes=moved, compute_sets=1 + 1 + 3), "its code is its own"
