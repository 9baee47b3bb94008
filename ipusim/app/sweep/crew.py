"""Run a sweep's points in a worker pool: local processes through joblib, or a Dask cluster.

A worker caches the common parts of its sweep's points, until it works for another sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
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

#: Kinds of worker pools.
BACKENDS: Final = ("local", "dask")
#: Seconds after which a cluster that does not answer counts as unavailable.
_PATIENCE_S: Final = 10
#: Cache of a worker process, by its sweep; only the current sweep has one.
_CACHES: dict[str, Cache] = {}
#: Threads of a worker take turns: Python runs one at a time, and users' code may not be thread-safe.
_POINT_LOCK: Final = Lock()


@dataclass(frozen=True)
class Crew:
    """Worker pool for points.

    Attributes:
        workers: number of local processes; 1 uses this process, and None as many processes as cores.
        backend: one of BACKENDS.
        address: address of a Dask cluster's scheduler, such as ``tcp://10.0.0.1:8786``.
    """

    workers: int | None = None
    backend: str = "local"
    address: str | None = None

    def check(self) -> None:
        """Check the options of the pool.

        Raises OptionError for invalid options, MissingPackageError for a cluster without its package.
        """
        if self.backend not in BACKENDS:
            near = did_you_mean(self.backend, BACKENDS)
            raise OptionError("backend", f"expected {' or '.join(BACKENDS)}, got {self.backend!r}{near}")
        if self.workers is not None and self.workers < 1:
            raise OptionError("workers", f"expected a number from 1 up, got {self.workers}")
        if self.backend == "local":
            if self.address is not None:
                raise OptionError("address", "expected {} dask with this option, got local", "backend")
            return
        if self.address is None:
            text = "expected the address address of a Dask cluster, such as tcp://10.0.0.1:8786, got none"
            raise OptionError("address", text)
        if self.workers is not None:
            text = "expected no number with {} dask, because the workers of the cluster run all points, got a number"
            raise OptionError("workers", text, "backend")
        try:
            import distributed  # noqa: F401, PLC0415 - an extra
        except ImportError:
            text = f"a Dask cluster needs the package distributed: {install_command('dask')}"
            raise MissingPackageError(text) from None

    def run(
        self, request: Request, points: Mapping[int, Mapping[str, Any]]
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Yield the number and outcome of each point, in the order in which points end.

        ``points`` are the changes of ``request`` by number. Raises OutputError if a cluster does not answer, and if a
        worker is ended from outside.
        """
        if not points:
            return
        number = min(self.workers or joblib.cpu_count(), len(points))
        if self.backend == "local" and number <= 1:
            cache = Cache()
            for position, changes in points.items():
                with cache.activate():
                    outcome = outcome_of(request, changes)
                yield position, outcome
            return
        common_parts = _CommonParts.from_request(request)
        if self.backend == "dask":
            yield from self._on_cluster(common_parts, points)
            return
        try:
            yield from side_by_side(_run_point, ((common_parts, *point) for point in points.items()), number)
        except BrokenProcessPool:
            text = "a worker process was ended from outside, for example by lack of memory: continue with fewer workers"
            raise OutputError(text) from None

    def _on_cluster(
        self, common_parts: _CommonParts, points: Mapping[int, Mapping[str, Any]]
    ) -> Generator[tuple[int, Outcome], None, None]:
        """Yield like :meth:`run`, from the workers of a Dask cluster.

        Raises OutputError if the cluster does not answer, or ends early.
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
                futures = client.map(partial(_run_point, common_parts), list(points), list(points.values()), pure=False)
                for future in as_completed(futures, loop=client.loop):
                    yield future.result()
            except (OSError, CancelledError, RuntimeError) as error:
                # Outcomes contain the errors of points: an exception here is an error of the cluster.
                text = f"{self.address}: the Dask cluster ended before the sweep did: {type(error).__name__}"
                raise OutputError(text) from error

    def _ask_cluster(self) -> None:
        """Connect to the cluster once before creating a Client.

        A Client that fails to connect prints a traceback on closing later.

        Raises OutputError unless a scheduler answers.
        """
        from distributed.comm import connect  # noqa: PLC0415 - an extra

        async def ask() -> None:
            (await connect(self.address, timeout=_PATIENCE_S)).abort()

        try:
            asyncio.run(ask())
        except (OSError, TimeoutError, ValueError) as error:
            raise OutputError(f"{self.address}: no Dask cluster answers: {error}") from None
        except Exception:  # another server sent bytes that cannot be parsed
            raise OutputError(f"{self.address}: no Dask cluster answers, but another server") from None


@dataclass(frozen=True)
class _CommonParts:
    """Common parts of a sweep's points, as plain data for any process.

    Attributes:
        sweep: unique identifier of the sweep.
        request: arguments of :meth:`~ipusim.api.Request.from_dict`.
        schedules: schedules registered in this process, besides ipusim's schedules.
    """

    sweep: str
    request: Mapping[str, Any]
    schedules: Sequence[Schedule] = ()

    @classmethod
    def from_request(cls, request: Request) -> _CommonParts:
        """Return the common parts of a request's points."""
        modules = tuple(
            schedule for schedule in map(schedules.find, schedules.names()) if not schedules.is_built_in(schedule)
        )
        names = {"name": request.name, "description": request.description, "folder": request.folder}
        return cls(uuid4().hex, {"data": runs.plain(runs.options_set(request.options)), **names}, modules)


def _request_of(common_parts: _CommonParts) -> Request:
    return Request.from_dict(**common_parts.request)


def _run_point(common_parts: _CommonParts, number: int, changes: Mapping[str, Any]) -> tuple[int, Outcome]:
    """Run a point in a worker process."""
    with _POINT_LOCK:
        cache = _CACHES.get(common_parts.sweep)
        if cache is None:
            _CACHES.clear()
            cache = _CACHES[common_parts.sweep] = Cache()
        for schedule in common_parts.schedules:
            if schedule.name not in schedules.names():
                schedules.register(schedule)
        with cache.activate():
            return number, outcome_of(cache(_request_of, common_parts), changes)
