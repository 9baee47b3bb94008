"""Words of stragglers are the same whether runs are computed together or simulated one by one."""

from __future__ import annotations

import pytest

from ipusim.app.explain.stragglers import stragglers
from ipusim.base.errors import IpusimError
from ipusim.retiming.retiming import Retiming
from ipusim.runs import other_passes
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
