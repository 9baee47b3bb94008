"""Run a program on several hosts: this process is the first host, and starts a process for every further host.

As under ``mpirun``, a process has separate TensorFlow switches, eager context, seeds, modules and ``__main__``. Only
one host runs at a time, in order of rank, until it waits for the other hosts: the order of printed lines is the same
in every run. A fork loses threads, so processes are forks of a server without threads: the server
only imported TensorFlow. The first host's process may already have threads.
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
#: Function that sends a message.
_Send = Callable[[Any], object]
#: Function that receives a message.
_Receive = Callable[[], Any]
#: Function that a host's process calls with its host.
Start = Callable[[machine.Host], Any]

#: Modules that the fork server imports once, for programs on hosts.
_PRELOADED_MODULES: Final = [
    "ipusim.ipu.host_strategies",
    "ipusim.ipu.pipelining_ops",
    "ipusim.ipu.programs.host_processes",
    "ipusim.ipu.programs.program_file",
    "tf_keras",
]
#: Answer to a host that waits for an ended host.
_NO_ANSWER: Final = object()
#: Kinds of messages from a host's process.
_PRINT, _WAITS, _END, _FAILURE = "printed", "waits", "ended", "failed"


class HostEndedError(ProgramStateError):
    """Raised when another host ends during a wait; the error of the run says more."""


def run_on_hosts(first: Callable[[], T], host_start: Start, count: int) -> list[T]:
    """Run ``first`` on host 0, in this process, and ``host_start`` on the other hosts.

    Args:
        first: function called on host 0.
        host_start: function for the other processes, called with a host; must be picklable.
        count: number of hosts.

    Returns:
        The results by rank.

    Raises:
        ProgramStateError: if hosts wait for different events.

    Exceptions of the functions are raised again, with a note about hosts that have not ended.
    """
    answers: SimpleQueue[Any] = SimpleQueue()
    messages: SimpleQueue[Any] = SimpleQueue()
    with _processes(host_start, count) as channels, ThreadPoolExecutor(1) as pool:
        hosts = [partial(_relay, answers.put, messages.get), *(partial(_relay, *channel) for channel in channels)]
        run: Future[list[Any]] = pool.submit(machine.run_together, hosts)
        answers.get()
        host = machine.Host(0, count, partial(_exchange, messages.put, answers.get))
        try:
            messages.put((_END, machine.run_on(host, first)))
        except BaseException as error:  # run_together raises the error again
            messages.put((_FAILURE, error))
        return run.result()


def _exchange(send: _Send, receive: _Receive, event: str, value: Any) -> Sequence[Any]:
    """Wait until all hosts have reached an event; return the values that the hosts brought."""
    send((_WAITS, event, value))
    answer = receive()
    if answer is _NO_ANSWER:
        raise HostEndedError(f"{event}: another host has ended")
    answers: Sequence[Any] = answer
    return answers


def _relay(send: _Send, receive: _Receive) -> Any:
    """Represent a process among the hosts: let the process run, and answer messages."""
    answer = None
    try:
        while True:
            send(answer)
            while (message := receive())[0] == _PRINT:
                getattr(sys, message[1]).write(message[2])
            match message:
                case (kind, result) if kind == _END:
                    return result
                case (kind, error) if kind == _FAILURE:
                    raise error
                case (_, event, value):
                    host = machine.this_host()
                    assert host is not None
                    answer = _NO_ANSWER  # kept if the exchange fails
                    answer = host.exchange(event, value)
    finally:
        if answer is _NO_ANSWER:
            send(answer)


@contextmanager
def _processes(start: Start, count: int) -> Iterator[Sequence[tuple[_Send, _Receive]]]:
    """Start the processes of the other hosts; yield a sending and a receiving function per process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED_MODULES)
    environment = str(Path.cwd()), dict(os.environ)
    channels, processes = [], []
    main_module, sys.modules["__main__"] = (
        sys.modules["__main__"],
        ModuleType("__main__"),
    )  # otherwise a new process would run the program's file
    try:
        for rank in range(1, count):
            own_end, process_end = context.Pipe()
            process = context.Process(
                target=_run_host, args=(process_end, rank, count, start, environment), daemon=True
            )
            process.start()
            process_end.close()
            processes.append(process)
            channels.append((partial(_send, own_end), partial(_receive, own_end, rank)))
    finally:
        sys.modules["__main__"] = main_module
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
        return _FAILURE, ProgramStateError(f"the process of host {rank} has ended")


def _run_host(connection: Any, rank: int, count: int, start: Start, environment: tuple[str, dict[str, str]]) -> None:
    """Run a host's process."""
    os.chdir(environment[0])
    os.environ.clear()
    os.environ.update(environment[1])
    lock = Lock()

    def send(message: Any) -> None:
        with lock:
            connection.send(message)

    def receive() -> Any:
        answer = connection.recv()
        return _NO_ANSWER if answer is None else answer[0]

    sys.stdout, sys.stderr = _HostOutput(send, "stdout"), _HostOutput(send, "stderr")
    try:
        receive()
        send((_END, start(machine.Host(rank, count, partial(_exchange, send, receive)))))
    except (EOFError, KeyboardInterrupt):
        pass  # the first host has ended
    except Exception as error:
        send((_FAILURE, error))


class _HostOutput(io.TextIOBase):
    """Output stream of a host's process, printed by the first host."""

    encoding = "utf-8"

    def __init__(self, send: _Send, name: str) -> None:
        """Set the sending function, and the name of the stream in ``sys``."""
        self._send, self._name = send, name

    def write(self, text: str, /) -> int:
        """Send a text to the first host."""
        self._send((_PRINT, self._name, text))
        return len(text)
