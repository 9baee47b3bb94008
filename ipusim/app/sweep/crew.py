"""Who runs the points of a sweep: processes of this machine through joblib, or a Dask cluster's workers.

A worker keeps what the points of the sweep that it works for have in common, and lets go of it with the next sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final
from uuid import uuid4

import joblib

from ipusim.api import Request, Schedule, runs, schedules
from ipusim.app.sweep.outcome import Outcome, outcome_of
from ipusim.base.cache import Cache
from ipusim.base.errors import MissingPackageError, OptionError, OutputError, install_command
from ipusim.base.near_names import did_you_mean
from ipusim.base.workers import side_by_side

#: Where points run.
BACKENDS: Final = ("local", "dask")
#: Seconds in which a cluster must answer.
_PATIENCE_S: Final = 10
#: In a worker process: the sweep that it works for, and what the points of that have in common.
_AT_HAND: dict[str, Cache] = {}
#: Python runs one thread of a worker at a time in any case, and a user's files are no work for several.
_ONE_AT_A_TIME: Final = Lock()


@dataclass(frozen=True)
class Crew:
    """Who runs points.

    Attributes:
        workers: processes of this machine; 1 is this process itself, None one for each core.
        backend: one of BACKENDS.
        address: of a Dask cluster's scheduler, such as ``tcp://10.0.0.1:8786``.
    """

    workers: int | None = None
    backend: str = "local"
    address: str | None = None

    def check(self) -> None:
        """Raise OptionError for what makes no crew, MissingPackageError for a cluster without the package for it."""
        if self.backend not in BACKENDS:
            near = did_you_mean(self.backend, BACKENDS)
            raise OptionError("backend", f"expected {' or '.join(BACKENDS)}, got {self.backend!r}{near}")
        if self.workers is not None and self.workers < 1:
            raise OptionError("workers", f"expected a number from 1 up, got {self.workers}")
        if self.backend == "local":
            if self.address is not None:
                raise OptionError("address", "expected {} dask with it, got local", "backend")
            return
        if self.address is None:
            text = "expected the address of a Dask cluster, such as tcp://10.0.0.1:8786, got none"
            raise OptionError("address", text)
        if self.workers is not None:
            text = "expected no number with {} dask, whose own workers run all, got one"
            raise OptionError("workers", text, "backend")
        try:
            import distributed  # noqa: F401, PLC0415 - an extra
        except ImportError:
            text = f"a Dask cluster needs the package distributed: {install_command('dask')}"
            raise MissingPackageError(text) from None

    def run(
        self, request: Request, points: Mapping[int, Mapping[str, Any]]
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Yield the number and the outcome of each point, in the order in which they end.

        ``points`` are the changes of ``request`` by their number. Raises OutputError for a cluster that does not
        answer, and for a worker that is ended from outside.
        """
        if not points:
            return
        number = min(self.workers or joblib.cpu_count(), len(points))
        if self.backend == "local" and number <= 1:
            cache = Cache()
            for position, changes in points.items():
                with cache.entered():
                    outcome = outcome_of(request, changes)
                yield position, outcome
            return
        errand = _Errand.of(request)
        if self.backend == "dask":
            yield from self._on_cluster(errand, points)
            return
        try:
            yield from side_by_side(_at_work, ((errand, *point) for point in points.items()), number)
        except BrokenProcessPool:
            text = "a worker was ended from outside, such as for want of memory: go on with fewer of them"
            raise OutputError(text) from None

    def _on_cluster(
        self, errand: _Errand, points: Mapping[int, Mapping[str, Any]]
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Yield as :meth:`run` does, from the workers of a Dask cluster.

        Raises OutputError for one that does not answer, and for one that ends before its points do.
        """
        from distributed import Client, as_completed  # noqa: PLC0415 - an extra

        self._ask_cluster()
        with ExitStack() as stack:
            try:
                client = Client(self.address, timeout=_PATIENCE_S, set_as_default=False)
                stack.enter_context(client)
            except (OSError, TimeoutError, ValueError) as error:
                raise OutputError(f"{self.address}: no Dask cluster answers: {error}") from None
            try:
                sent = client.map(partial(_at_work, errand), list(points), list(points.values()), pure=False)
                for future in as_completed(sent, loop=client.loop):
                    yield future.result()
            except (OSError, CancelledError, RuntimeError) as error:
                # What a point meets is told in its outcome: these are of the cluster.
                text = f"{self.address}: the Dask cluster ended before the sweep did: {type(error).__name__}"
                raise OutputError(text) from error

    def _ask_cluster(self) -> None:
        """Connect to the cluster once: a Client that fails to tries to close itself later, with a traceback.

        Raises OutputError for one that does not answer as a scheduler does.
        """
        from distributed.comm import connect  # noqa: PLC0415 - an extra

        async def ask() -> None:
            (await connect(self.address, timeout=_PATIENCE_S)).abort()

        try:
            asyncio.run(ask())
        except (OSError, TimeoutError, ValueError) as error:
            raise OutputError(f"{self.address}: no Dask cluster answers: {error}") from None
        except Exception:  # whatever its reader makes of the bytes of another server
            raise OutputError(f"{self.address}: no Dask cluster answers, but another server") from None


@dataclass(frozen=True)
class _Errand:
    """The common parts of all points of a sweep, as plain data for any process.

    Attributes:
        sweep: tells sweeps apart.
        data: the options.
        name, description, folder: of the request.
        schedules: that were registered here beside the house's own.
    """

    sweep: str
    data: Mapping[str, Any]
    name: str
    description: str
    folder: str
    schedules: Sequence[Schedule] = field(default=())

    @classmethod
    def of(cls, request: Request) -> _Errand:
        """Take down a request."""
        own = tuple(
            schedule for schedule in map(schedules.find, schedules.names()) if not schedules.is_of_the_house(schedule)
        )
        data, folder = runs.plain(runs.options_set(request.options)), str(request.folder)
        return cls(uuid4().hex, data, request.name, request.description, folder, own)

    def request(self) -> Request:
        """Return the request again."""
        return Request.from_dict(self.data, name=self.name, description=self.description, folder=Path(self.folder))


def _at_work(errand: _Errand, number: int, changes: Mapping[str, Any]) -> tuple[int, Outcome]:
    """Run a point in a worker process."""
    with _ONE_AT_A_TIME:
        cache = _AT_HAND.get(errand.sweep)
        if cache is None:
            _AT_HAND.clear()
            cache = _AT_HAND[errand.sweep] = Cache()
        for schedule in errand.schedules:
            if schedule.name not in schedules.names():
                schedules.register(schedule)
        with cache.entered():
            return number, outcome_of(cache(_Errand.request, errand), changes)
