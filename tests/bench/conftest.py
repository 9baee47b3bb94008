"""Ratios of times measured in one run, for machines of any speed: run with ``pytest tests/bench -s``."""

import gc
import time
from collections.abc import Callable

import pytest

#: Runs of each side, taken in turn; the fastest counts, which the machine's other work disturbs least. Times are of the
#: processor: on a machine with four busy processes to a core, a clock on the wall gave ratios up to twice as large.
ROUNDS = 5


@pytest.fixture
def ratio() -> Callable[..., float]:
    def measure(name: str, ours: Callable[[], object], bare: Callable[[], object], rounds: int = ROUNDS) -> float:
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for is_ours, function in ((False, bare), (True, ours)):
                gc.collect()
                start = time.process_time()
                function()
                times[is_ours].append(time.process_time() - start)
        found = min(times[True]) / min(times[False])
        print(f"\n{name}: {min(times[True]):.3f} s against {min(times[False]):.3f} s bare: {found:.2f} x")
        return found

    return measure


@pytest.fixture(scope="session", autouse=True)
def read_and_drawn_once():
    """Read texts and draw samples each time, as a process does whose speed is measured."""
