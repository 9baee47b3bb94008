"""Check a scenario's run against its expectations and its pin, the recorded results of an earlier run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ipusim.api import Job, Run, assemble, execute, runs
from ipusim.app.regression.difference import difference
from ipusim.app.regression.expectations import check_expectations, judge
from ipusim.app.regression.file import check_target, has_pin, pin_bytes, pin_path, read_pin
from ipusim.app.regression.outcome import Outcome
from ipusim.app.regression.pin import pin_of
from ipusim.app.scenario.load import placed_request
from ipusim.base.errors import IpusimError


def check_scenario(path: Path, *, renew: bool = False, needs_pin: bool = True, times: bool = False) -> Outcome:
    """Run a scenario and check expectations and pin; errors become Outcomes.

    Args:
        path: the scenario.
        renew: whether to return a changed pin; never for a run that misses expectations.
        needs_pin: whether only existing pins are renewed.
        times: whether to compute times twice and report differences as missed.
    """
    began = time.perf_counter()
    try:
        return replace(_judge(path, renew, needs_pin, times), seconds=time.perf_counter() - began)
    except IpusimError as error:
        return Outcome(path, "mistake", mistake=str(error))
    except MemoryError as error:
        return Outcome(path, "mistake", mistake=f"{path}: too little memory: {error}")
    except OSError as error:
        return Outcome(path, "mistake", mistake=f"{error.filename or path}: {error.strerror or error}")
    except Exception as error:  # user functions may raise anything
        return Outcome(path, "mistake", mistake=f"{path}: {type(error).__name__}: {error}")


def _judge(path: Path, renew: bool, needs_pin: bool, times: bool) -> Outcome:
    with placed_request(path) as request:
        job = assemble(request)
        check_expectations(job)
        pin = _read_pin_of(path, job, renew)
        run = execute(job)
        judgements = judge(request.options, run.summary.to_dict())
    time_check = runs.check_times(job, run.timeline) if times else None
    change = difference(pin, run) if pin is not None else None
    failures = tuple(str(judgement) for judgement in judgements if not judgement.is_met)
    failures += (str(time_check),) if time_check is not None and time_check.outcome == "different" else ()
    return Outcome(
        path,
        "missed" if failures or (change and not renew) else "held",
        missed=failures,
        expectations=tuple(judgement.to_dict() for judgement in judgements),
        pinned=pin is not None,
        difference=str(change) if change else "",
        times=time_check.text if time_check is not None and time_check.outcome != "different" else "",
        details=change.to_dict() if change else None,
        new_pin=_new_pin_bytes(path, run, pin is not None or not needs_pin) if renew and not failures else None,
    )


def _read_pin_of(path: Path, job: Job, renew: bool) -> dict[str, Any] | None:
    """Return the pin beside a scenario; None for a missing pin, and for an unreadable pin to be renewed."""
    if not has_pin(path):
        return None
    try:
        return read_pin(pin_path(path), job.name)
    except IpusimError:
        if not renew:
            raise
        check_target(pin_path(path))
        return None


def _new_pin_bytes(path: Path, run: Run, is_needed: bool) -> bytes | None:
    """Return the content of a new pin; None if unchanged or not needed."""
    if not is_needed and not has_pin(path):
        return None
    content = pin_bytes(pin_of(run))
    return content if not has_pin(path) or pin_path(path).read_bytes() != content else None
