"""Trials: a request with changes that runs for time alone, or its refusal; one module leaves arithmetic out."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

import ipusim
from ipusim.analysis.fits import Fits
from ipusim.app.scenario.load import load_request
from ipusim.app.study.trial import Trial, time_alone, try_request
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.scenarios import SCENARIOS

APP = Path(ipusim.__file__).parent / "app"
#: Stages of 1 MiB and 2 GiB, of which an IPU of a Mk2 machine holds the first alone.
STAGES = [
    {"name": "small", "forward": 1000, "backward": 2000, "parameter_bytes": "1 MiB"},
    {"name": "large", "forward": 1000, "backward": 2000, "parameter_bytes": "2 GiB"},
]


def request_of(machine, **options):
    """Return a request of two stages, of which the second fits no IPU."""
    pipeline = {"gradient_accumulation_count": 4, "stages": STAGES}
    return Request.from_dict({"system": {"name": machine}, "pipeline": pipeline, **options})


def test_one_module_of_the_application_leaves_arithmetic_out():
    setting = re.compile(r"""["']numerics["'=]\s*[:\]]?\s*=?\s*["']?off""")
    assert {str(path.relative_to(APP)) for path in APP.rglob("*.py") if setting.search(path.read_text())} == {
        "study/trial.py"
    }


def test_a_trial_takes_the_time_of_the_run_and_computes_nothing():
    request = load_request(SCENARIOS / "digits_training.yaml", ["steps=2"])
    trial, run = try_request(request), execute(assemble(request)).summary
    assert trial.accepted_job.workload is None
    assert (trial.throughput, trial.period) == (run.throughput, Fraction(run.throughput.run_cycles, run.executions))
    assert (trial.cycles, trial.samples) == (run.execution_cycles, run.throughput.effective_batch_size)


def test_a_refused_trial_has_the_words_of_the_rule():
    trial = try_request(request_of("free"), {"pipeline.schedule": "nothing"})
    assert trial.job is trial.fits is trial.cycles is None
    assert "nothing" in trial.refusal
    assert Trial(None, "why").refusal == "why"


@pytest.mark.parametrize(
    ("request_", "changes", "fits"),
    [
        (request_of("m2000"), {}, Fits.NO),
        (request_of("m2000", memory="off"), {}, Fits.YES),
        (request_of("free"), {}, Fits.YES),
        (request_of("free", memory="error"), {}, Fits.NO),
        (request_of("free"), {"system.name": "m2000"}, Fits.NO),
        (request_of("m2000"), {"system.name": "free"}, Fits.YES),
        (request_of("m2000"), {"memory": "off"}, Fits.YES),
    ],
    ids=["limited", "off", "free", "free but limited", "to a limited machine", "to a free one", "no more limited"],
)
def test_misfits_are_reported_where_memory_is_limited_alone(request_, changes, fits):
    assert try_request(request_, changes).fits is fits


def test_a_change_of_what_is_left_out_wins():
    request = request_of("m2000", steps=3)
    assert time_alone(request, {"memory": "error"}, allow_oversized=True).options.memory == "error"
    assert time_alone(request, {"steps": None}).options.steps == 1
