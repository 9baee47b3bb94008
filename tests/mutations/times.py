"""A plugin of pytest: writes what each test took that passed, in seconds, into the file that ``TIMES_FILE`` names."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

_seconds: Counter[str] = Counter()
_failed: set[str] = set()


def pytest_runtest_logreport(report):
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        passed = {test: round(taken, 4) for test, taken in _seconds.items() if test not in _failed}
        Path(os.environ["TIMES_FILE"]).write_text(json.dumps(passed))
