"""Words of stragglers are the same whether runs are computed together or simulated one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.api import runs
from ipusim.app.explain.stragglers import stragglers
from ipusim.app.explain.trial import WhatIf
from ipusim.app.explain.what_if import what_if
from ipusim.base.errors import IpusimError
from ipusim.retiming.retiming import Retiming
from ipusim.runs import other_passes, waterfall
from ipusim.runs.execute import execute
from tests.effort import share
from tests.properties.test_retiming import cases

#: Drawn requests.
REQUESTS = 200


def test_words_are_those_of_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of runs with disturbances, several executions and hosts; most are computed in part."""
    seen, computed = 0, []
    executions = Retiming.executions

    def counted(self: Retiming, *args: object) -> object:
        found = executions(self, *args)  # type: ignore[arg-type]
        computed.append(bool(found.exact.all()))
        return found

    for case in [*cases(20 * share(REQUESTS), seed=3)][::20]:
        try:
            timeline = execute(case.job).timeline
        except IpusimError:  # as with a stage whose program does not learn
            continue
        with monkeypatch.context() as patch:
            patch.setattr(Retiming, "executions", counted)
            found = stragglers(case.job, timeline)
        with monkeypatch.context() as patch:
            patch.setattr(other_passes, "are_quick", lambda *_: False)
            assert stragglers(case.job, timeline) == found, case.name
        seen += 1
    assert sum(computed) >= 0.6 * seen > 0, (computed, seen)


def test_waterfalls_and_changes_are_those_of_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of a run without repetition; many of its changed runs are computed without events."""
    seen, lengths = 0, []
    run_without_events = other_passes.run_without_events

    def counted(*args: Any, **keywords: Any) -> int | None:
        lengths.append(run_without_events(*args, **keywords))
        return lengths[-1]

    for case in [*cases(20 * share(REQUESTS), seed=4)][::40]:
        try:
            timeline = execute(case.job, jump=False).timeline
        except IpusimError:  # as with a stage whose program does not learn
            continue
        job = case.job
        with monkeypatch.context() as patch:
            for module in (waterfall, runs):
                patch.setattr(module, "run_without_events", counted)
            found = waterfall.waterfall_of(job, timeline), what_if(job, timeline)
            of_length = waterfall.waterfall_of(job, throughput_of(timeline).run_cycles) if not job.between else found[0]
        with monkeypatch.context() as patch:
            patch.setattr(other_passes, "_MOST_OF_ONE", 0)
            simulated = waterfall.waterfall_of(job, timeline), what_if(job, timeline)
        assert _outcomes(found[1]) == _outcomes(simulated[1]), case.name
        assert found[0] == of_length == simulated[0], case.name
        seen += 1
    assert sum(length is not None for length in lengths) >= 2 * seen > 0, (len(lengths), seen)


def _outcomes(what_ifs: Iterable[WhatIf]) -> list[tuple[object, ...]]:
    """Return the fields of outcomes, with the words of changes in place of their functions."""
    return [
        (each.change.words, each.before, each.after, each.refusal, each.fits, each.too_large, each.cause)
        for each in what_ifs
    ]
