"""Execution of a program on several hosts: this process is the first host, and starts a process per further host.

As under ``mpirun``, a process has separate TensorFlow switches, eager context, seeds, modules and ``__main__``. Only
one host runs at a time, in order of rank, until it waits for the other hosts: the order of printed lines is the same
in every run. Processes are forks of a server that imported TensorFlow but ran nothing: a fork loses threads, and the
server has started none. This process may have run anything before.
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
#: Functions that send a message, and receive a message.
_Send = Callable[[Any], object]
_Receive = Callable[[], Any]
#: Function that a host's process calls with its host.
Start = Callable[[machine.Host], Any]

#: Modules that the fork server imports once, for programs on hosts.
_IMPORTED: Final = [
    "ipusim.ipu.host_strategies",
    "ipusim.ipu.pipelining_ops",
    "ipusim.ipu.programs.host_processes",
    "ipusim.ipu.programs.program_file",
    "tf_keras",
]
#: Answer to a host that waits for an ended host.
_NO_ANSWER: Final = object()
_PRINTED, _WAITS, _ENDED, _FAILED = "printed", "waits", "ended", "failed"


class HostEndedError(ProgramStateError):
    """End of another host during a wait; the error of the run says more."""


def run_on_hosts(first: Callable[[], T], other: Start, count: int) -> list[T]:
    """Run ``first`` on host 0, in this process, and ``other`` on further hosts.

    Args:
        first: function called on host 0.
        other: function called with its host in further processes; must be picklable.
        count: number of hosts.

    Returns:
        The results by rank.

    Raises:
        ProgramStateError: hosts wait for different events.

    Exceptions of the functions are raised again, with a note about hosts that have not ended.
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
        except BaseException as error:  # run_together raises the error again
            messages.put((_FAILED, error))
        return together.result()


class Starts:
    """Hosts started by a program's calls of ``horovod.run``, one call after another.

    Every host runs the program again up to the call, silently, with the results of earlier calls.
    """

    def __init__(
        self, again: Callable[..., None], known: Sequence[list[Any]] = (), host: machine.Host | None = None
    ) -> None:
        """Set the function that runs the program again; a host's process also gets the results of earlier calls."""
        self._again, self._host, self._known = again, host, list(known)
        self._calls = 0

    def __call__(self, function: Callable[[], Any], count: int) -> list[Any]:
        """Call a function on ``count`` hosts, and return the results by rank."""
        self._calls += 1
        if self._calls > len(self._known):
            if self._host is not None:
                _Printed.silent = False
                raise _Called(machine.run_on(self._host, function))
            other = partial(_run_to_call, self._again, tuple(self._known))
            self._known.append(run_on_hosts(function, other, count))
        return self._known[self._calls - 1]


class _Called(BaseException):
    """End of a host's process after the function of a call has run."""


def _run_to_call(again: Callable[..., None], known: Sequence[list[Any]], host: machine.Host) -> Any:
    """Run the program on a host up to the call, then the call's function; return its result."""
    _Printed.silent = True
    try:
        again(starts=Starts(again, known, host))
    except _Called as called:
        return called.args[0]
    raise ProgramStateError(f"horovod.run: host {host.rank} has ended before the call that started it")


def _exchange(send: _Send, receive: _Receive, what: str, brought: Any) -> Sequence[Any]:
    """Wait until all hosts have reached the event ``what``; return the values that the hosts brought."""
    send((_WAITS, what, brought))
    answer = receive()
    if answer is _NO_ANSWER:
        raise HostEndedError(f"{what}: another host has ended")
    found: Sequence[Any] = answer
    return found


def _relay(send: _Send, receive: _Receive) -> Any:
    """Represent a process among the hosts: let the process run, and answer its messages."""
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
                    answer = _NO_ANSWER  # kept if the exchange fails
                    answer = host.exchange(what, brought)
    finally:
        if answer is _NO_ANSWER:
            send(answer)


@contextmanager
def _processes(start: Start, count: int) -> Iterator[Sequence[tuple[_Send, _Receive]]]:
    """Start the processes of further hosts; yields functions to send to and receive from every process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    surroundings = str(Path.cwd()), dict(os.environ)
    channels, processes = [], []
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")  # a process would rerun it
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
    with suppress(OSError):  # _receive reports an ended process
        connection.send(None if answer is _NO_ANSWER else (answer,))


def _receive(connection: Any, rank: int) -> Any:
    try:
        return connection.recv()
    except EOFError:
        return _FAILED, ProgramStateError(f"the process of host {rank} has ended")


def _host(connection: Any, rank: int, count: int, start: Start, surroundings: tuple[str, dict[str, str]]) -> None:
    """Run a host's process."""
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
    """Output stream of a host's process, printed by the first host."""

    encoding = "utf-8"
    #: Whether the streams of this process drop all texts.
    silent = False

    def __init__(self, send: _Send, name: str) -> None:
        """Set the sending function, and the name of the stream in ``sys``."""
        self._send, self._name = send, name

    def write(self, text: str, /) -> int:
        """Send a text to the first host."""
        if not self.silent:
            self._send((_PRINTED, self._name, text))
        return len(text)
