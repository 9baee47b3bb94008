"""A program on several hosts: this process is the first host, and each other host is a process of its own.

A process has the switches of TensorFlow 1 and 2, eager context, seeds, modules and ``__main__`` of its own, as under
``mpirun``. One host runs at any time, by rank, until it needs the others: what hosts print comes in the same order in
every run. Processes are forks of a server that has imported TensorFlow and run nothing, so that none of its threads
that a fork would lose has begun; this process may have run anything.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import ModuleType
from typing import Any, Final, TypeVar

from ipusim.api import machine
from ipusim.base.errors import ProgramStateError

T = TypeVar("T")
#: Sends a message, and receives one.
_Send = Callable[[Any], object]
_Receive = Callable[[], Any]
#: What a process of a host runs: takes the host.
Start = Callable[[machine.Host], Any]

#: Modules that the server of processes imports: those that programs on hosts need, as a fork costs nothing.
_IMPORTED: Final = [
    "ipusim.ipu.host_strategies",
    "ipusim.ipu.pipelining_ops",
    "ipusim.ipu.programs.host_processes",
    "ipusim.ipu.programs.program_file",
    "tf_keras",
]
#: Answer to a host that waits for one that has ended.
_NO_ANSWER: Final = object()
_PRINTED, _WAITS, _ENDED, _FAILED = "printed", "waits", "ended", "failed"


class HostEndedError(ProgramStateError):
    """The end of another host, where a host waits for it; the error of the run says more."""


def run_on_hosts(first: Callable[[], T], other: Start, count: int) -> list[T]:
    """Run a function on the first host, which is this process, and one on each other host.

    Args:
        first: called on host 0.
        other: called with its host in each other process; must be picklable.
        count: number of hosts.

    Returns:
        The results by rank.

    Raises:
        ProgramStateError: where hosts do not wait for the same.

    What a function raises comes through, with a note of the hosts that have not ended.
    """
    answers: SimpleQueue[Any] = SimpleQueue()
    messages: SimpleQueue[Any] = SimpleQueue()
    with _processes(other, count) as channels, ThreadPoolExecutor(1) as pool:
        hosts = [partial(_relay, answers.put, messages.get), *(partial(_relay, *channel) for channel in channels)]
        together: Future[list[Any]] = pool.submit(machine.run_together, hosts)
        answers.get()
        host = machine.Host(0, count, partial(_exchange, messages.put, answers.get))
        try:
            messages.put((_ENDED, machine.run_on(host, first)))
        except BaseException as error:  # raised again by what runs the hosts together
            messages.put((_FAILED, error))
        return together.result()


class Starts:
    """The hosts that a program starts itself, by calls of ``horovod.run``, one call after another.

    Each host runs the program again up to the call, silently, with the results that earlier calls had.
    """

    def __init__(
        self, again: Callable[..., None], known: Sequence[list[Any]] = (), host: machine.Host | None = None
    ) -> None:
        """Take what runs the program again, and in the process of a host what it knows of earlier calls."""
        self._again, self._host, self._known = again, host, list(known)
        self._calls = 0

    def __call__(self, function: Callable[[], Any], count: int) -> list[Any]:
        """Call a function on so many hosts, and return its results by rank."""
        self._calls += 1
        if self._calls > len(self._known):
            if self._host is not None:
                _Printed.silent = False
                raise _Called(machine.run_on(self._host, function))
            other = partial(_run_to_call, self._again, tuple(self._known))
            self._known.append(run_on_hosts(function, other, count))
        return self._known[self._calls - 1]


class _Called(BaseException):
    """The end of a process whose host has run the function of a call."""


def _run_to_call(again: Callable[..., None], known: Sequence[list[Any]], host: machine.Host) -> Any:
    """Be a host of a call: run the program up to it, and then the function, whose result it returns."""
    _Printed.silent = True
    try:
        again(starts=Starts(again, known, host))
    except _Called as called:
        return called.args[0]
    raise ProgramStateError(f"horovod.run: host {host.rank} has ended before the call that started it")


def _exchange(send: _Send, receive: _Receive, what: str, brought: Any) -> Sequence[Any]:
    """Wait until every host has come to what the words name; returns what each has brought."""
    send((_WAITS, what, brought))
    answer = receive()
    if answer is _NO_ANSWER:
        raise HostEndedError(f"{what}: another host has ended")
    found: Sequence[Any] = answer
    return found


def _relay(send: _Send, receive: _Receive) -> Any:
    """Be a host for those that run together: tell its process when it may go on, and do what its messages say."""
    answer = None
    try:
        while True:
            send(answer)
            while (message := receive())[0] == _PRINTED:
                getattr(sys, message[1]).write(message[2])
            match message:
                case (kind, result) if kind == _ENDED:
                    return result
                case (kind, error) if kind == _FAILED:
                    raise error
                case (_, what, brought):
                    host = machine.this_host()
                    assert host is not None
                    answer = _NO_ANSWER  # unless there is one
                    answer = host.exchange(what, brought)
    finally:
        if answer is _NO_ANSWER:
            send(answer)


@contextmanager
def _processes(start: Start, count: int) -> Iterator[Sequence[tuple[_Send, _Receive]]]:
    """Start the processes of all hosts but the first; yields what sends to and receives from each."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    surroundings = str(Path.cwd()), dict(os.environ)
    channels, processes = [], []
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")  # which a process would run again
    try:
        for rank in range(1, count):
            mine, theirs = context.Pipe()
            process = context.Process(target=_host, args=(theirs, rank, count, start, surroundings), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            channels.append((partial(_send, mine), partial(_receive, mine, rank)))
    finally:
        sys.modules["__main__"] = main
    try:
        yield channels
    finally:
        for process in processes:
            process.kill()
            process.join()


def _send(connection: Any, answer: Any) -> None:
    with suppress(OSError):  # of a process that has ended, which says so itself
        connection.send(None if answer is _NO_ANSWER else (answer,))


def _receive(connection: Any, rank: int) -> Any:
    try:
        return connection.recv()
    except EOFError:
        return _FAILED, ProgramStateError(f"the process of host {rank} has ended")


def _host(connection: Any, rank: int, count: int, start: Start, surroundings: tuple[str, dict[str, str]]) -> None:
    """Be the process of a host."""
    os.chdir(surroundings[0])
    os.environ.clear()
    os.environ.update(surroundings[1])
    lock = Lock()

    def send(message: Any) -> None:
        with lock:
            connection.send(message)

    def receive() -> Any:
        answer = connection.recv()
        return _NO_ANSWER if answer is None else answer[0]

    sys.stdout, sys.stderr = _Printed(send, "stdout"), _Printed(send, "stderr")
    try:
        receive()
        send((_ENDED, start(machine.Host(rank, count, partial(_exchange, send, receive)))))
    except (EOFError, KeyboardInterrupt):
        pass  # the first host has ended
    except Exception as error:
        send((_FAILED, error))


class _Printed(io.TextIOBase):
    """A stream of a process that the first host prints."""

    encoding = "utf-8"
    #: Whether all streams of the process keep silent.
    silent = False

    def __init__(self, send: _Send, name: str) -> None:
        """Take what sends, and the name of the stream in ``sys``."""
        self._send, self._name = send, name

    def write(self, text: str, /) -> int:
        """Send a text."""
        if not self.silent:
            self._send((_PRINTED, self._name, text))
        return len(text)
