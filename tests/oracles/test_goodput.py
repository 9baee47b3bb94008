"""Days of training with failures, against the exact expectation and a simulation that goes from event to event."""

import numpy as np
import pytest
from scipy.special import lambertw

from ipusim.app.long_runs.renewal import Lived, Renewal
from ipusim.hardware.failures import LLAMA3

#: Llama 3's mean time between failures, and a minute for a checkpoint, with updates of 4 s.
_LLAMA = Renewal(4.0, 54 * 86400 / 419, 60.0)


def test_llama_3_fails_as_its_table_says():
    assert sum(LLAMA3.counts.values()) == 419
    assert LLAMA3.per_device_hour == pytest.approx(1.97e-5, rel=2e-3)
    whole = 1 / sum(1 / mtbf for mtbf in LLAMA3.mtbf_s(LLAMA3.devices).values())
    assert whole == pytest.approx(11_135, abs=0.5)


def test_a_minute_of_checkpoints_loses_a_tenth_of_llama_3():
    assert _LLAMA.young_s == pytest.approx(1156, abs=0.5)
    at_young = _LLAMA.updates(_LLAMA.young_s)
    assert round(100 * _LLAMA.waste(at_young), 2) == 10.03
    assert round(100 * _LLAMA.first_order_waste, 2) == 10.38
    first_order = _LLAMA.first_order(np.array([_LLAMA.young_s]))
    assert first_order[0] == pytest.approx(_LLAMA.first_order_waste)


@pytest.mark.parametrize("recovery", [(0.0, 0.0), (30.0, 270.0)])
def test_drawn_trainings_lose_what_is_expected(recovery):
    training = Renewal(4.0, _LLAMA.mtbf_s, 60.0, *recovery)
    updates, wall_s = training.updates(training.young_s), 54 * 86400.0
    wastes = [1 - training.lived(updates, wall_s, np.random.default_rng(seed)).work_s / wall_s for seed in range(200)]
    assert abs(np.mean(wastes) - training.waste(updates)) < 3 * np.std(wastes, ddof=1) / np.sqrt(200)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_period_loses_less_than_its_neighbours_and_is_near_that_of_lambert(seed):
    rng = np.random.default_rng(seed)
    update_s, checkpoint_s, mtbf_s = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(3, 5)
    training = Renewal(update_s, mtbf_s, checkpoint_s, restart_s=rng.uniform(0, 900))
    best = training.best_updates()
    assert training.waste(best) <= min(training.waste(best + 1), training.waste(max(best - 1, 1)))
    exact = mtbf_s * (1 + lambertw(-np.exp(-1 - checkpoint_s / mtbf_s)).real)
    assert best == pytest.approx(exact / update_s, abs=1)
    assert training.daly_s == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("hours", "checkpoint_s"), [(1e6, 1.0), (1e4, 60.0), (1.0, 60.0)])
def test_the_best_period_of_short_updates_is_exact_too(hours, checkpoint_s):
    """An update of 25 us changes the share lost by less than a float tells; Daly's third order is as near."""
    training = Renewal(25.19e-6, 3600 * hours, checkpoint_s)
    # With x = P / mu, c = C / mu: e^-(x + c) = 1 - x, of which the series is x = s - s^2 / 6 ..., s = sqrt(2 c).
    x, c = training.best_updates() * training.update_s / training.mtbf_s, checkpoint_s / training.mtbf_s
    assert -np.expm1(-(x + c)) == pytest.approx(x, rel=1e-8)
    assert training.best_updates() == pytest.approx(training.daly_s / training.update_s, rel=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_a_training_is_that_of_a_simulation_from_event_to_event(seed):
    rng = np.random.default_rng(seed)
    training = Renewal(*rng.uniform(1, [5, 900, 20, 40, 60]))
    updates, wall_s = int(rng.integers(1, 60)), float(rng.uniform(0, 40_000))
    lived = training.lived(updates, wall_s, np.random.default_rng(seed))
    expected = _step_by_step(training, updates, wall_s, np.random.default_rng(seed))
    for name, value in vars(expected).items():
        assert getattr(lived, name) == pytest.approx(value, abs=1e-6), name
    spent = lived.work_s + lived.checkpoints_s + lived.lost_s + lived.detection_s + lived.restart_s
    assert spent == pytest.approx(wall_s)


def _step_by_step(training: Renewal, updates: int, wall_s: float, rng: np.random.Generator) -> Lived:
    """Return what becomes of a training that goes on second by second: update, checkpoint, failure, recovery."""
    failures = iter(np.cumsum(rng.exponential(training.mtbf_s, 1024)))
    now, struck, failure = 0.0, 0, next(failures)
    spent = dict.fromkeys(("work", "checkpoints", "lost", "detection", "restart"), 0.0)
    while now < wall_s:
        begun = {"work": 0.0, "checkpoints": 0.0}
        phases = [("work", training.update_s)] * updates + [("checkpoints", training.checkpoint_s)]
        for kind, seconds in phases:
            end = min(now + seconds, failure, wall_s)
            begun[kind] += end - now
            unfinished = kind == "work" and end < now + seconds
            now = end
            if now in (failure, wall_s):
                break
        if now == wall_s:  # what was begun counts, but for an update that did not end
            partial = begun["work"] % training.update_s if unfinished else 0.0
            spent["work"] += begun["work"] - partial
            spent["checkpoints"] += begun["checkpoints"]
            spent["lost"] += partial
        elif now < failure:
            spent["work"] += begun["work"]
            spent["checkpoints"] += begun["checkpoints"]
        else:
            spent["lost"] += begun["work"] + begun["checkpoints"]
            while now == failure and now < wall_s:  # a failure in recovery begins it anew
                struck, failure = struck + 1, next(failures)
                for kind, seconds in (("detection", training.detect_s), ("restart", training.restart_s)):
                    end = min(now + seconds, failure, wall_s)
                    spent[kind] += end - now
                    now = end
                    if now == failure:
                        break
    return Lived(struck, *(spent[key] for key in ("work", "checkpoints", "lost", "detection", "restart")))
