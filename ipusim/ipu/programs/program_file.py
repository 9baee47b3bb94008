"""A program, a Python file, that runs as ``python program.py`` runs it."""

from __future__ import annotations

import ast
import contextvars
import ctypes
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ipusim.api import machine
from ipusim.base.errors import FileError, IpusimError, ProgramError, ProgramStateError
from ipusim.base.files import open_file
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.imports.hook import located

#: How the name of a program ends.
_SUFFIX: Final = ".py"


class ProgramEnded(Exception):  # noqa: N818 - an end, which may be no error
    """A program that has ended by itself before its last line, and not well.

    Attributes:
        code: its exit code.
    """

    def __init__(self, code: int) -> None:
        """Take the exit code."""
        super().__init__(code)
        self.code = code


class PlacedError(ProgramError):
    """An error whose message begins with its place in the program."""


class ProgramFile:
    """A Python file that has been read and parsed.

    Attributes:
        path: where it is.
        name: the file's, without its suffix.
        description: the first paragraph of its docstring, in one line.
    """

    def __init__(self, path: Path) -> None:
        """Read it; raises FileError where it cannot be read, or is no Python."""
        self.path, self.name = path, path.stem
        self._file = os.path.abspath(path)  # noqa: PTH100 - as Python does, which leaves symbolic links as they are
        self._tree = _parsed(path)
        first, _, _ = (ast.get_docstring(self._tree) or "").partition("\n\n")
        self.description = " ".join(first.split())

    def run(
        self,
        arguments: Sequence[str] = (),
        hosts: int | None = None,
        tensorflow: int | None = None,
        *,
        starts: Callable[[Callable[[], Any], int], list[Any]] | None = None,
    ) -> None:
        """Run it as ``__main__``, with its folder on ``sys.path``, until its last line and the end of its threads.

        TensorFlow runs it, and traces what it places on simulated IPUs. What it has configured and compiled ends with
        it.

        Args:
            arguments: its arguments, behind its name.
            hosts: number of simulated hosts, as processes of ``mpirun`` are; None for one without others.
            tensorflow: the major version that it is told, 1 or 2; by default by the names that it uses.
            starts: calls a function on so many hosts for ``horovod.run``; by default in processes that run the program
                up to that call.

        Raises:
            ProgramError: for what this package refuses, also of hosts that do not wait for the same, with file and line
                of the program and the number of the host.
            ProgramEnded: for another exception, which is printed as Python prints it, and where it leaves with a code
                that is not 0.
        """
        before, self._starts = set(threading.enumerate()), starts
        with _as_main(self.path, self._file, arguments) as module, self._imports(tensorflow):
            try:
                if hosts is None:
                    contextvars.copy_context().run(self._execute, module)
                else:
                    self._execute_on(hosts, module)
            except BaseException as end:
                if isinstance(end, ProgramEnded):
                    for note in getattr(end, "__notes__", ()):  # of hosts that wait for the one that has ended
                        print(f"{self.path}: {note} (exit code {end.code})", file=sys.stderr)
                for thread in self._threads_behind(before):
                    if self._is_in_program(thread):  # and may wait for results that do not come
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
                        )
                raise
            for thread in self._threads_behind(before):
                thread.join()

    @staticmethod
    def _threads_behind(before: Collection[threading.Thread]) -> list[threading.Thread]:
        """Return the threads that Python waits for, without those of before."""
        return [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]

    def _is_in_program(self, thread: threading.Thread) -> bool:
        """Tell whether a thread runs a function of the program's folder."""
        folder = f"{Path(self._file).resolve().parent}{os.sep}"
        frame = sys._current_frames().get(thread.ident or 0)
        files = [step.f_code.co_filename for step, _ in traceback.walk_stack(frame)] if frame else []
        return self._file in files or any(file.startswith(folder) for file in files)

    @contextmanager
    def _imports(self, tensorflow: int | None) -> Iterator[None]:
        """Give the program's modules their imports in the block."""
        from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415 - which imports TensorFlow
        from ipusim.ipu.imports.version import written_for  # noqa: PLC0415 - as above

        self._major = tensorflow or written_for(self._tree, Path(self._file).parent)[0]
        with hosted(self._major):
            yield

    def _execute_on(self, hosts: int, first: ModuleType) -> None:
        """Run it on hosts, of which this process is the first, with the module ``first`` as its ``__main__``."""
        from ipusim.ipu.programs.host_processes import run_on_hosts  # noqa: PLC0415 - which imports TensorFlow

        other = partial(_run_on, self.path, tuple(sys.argv[1:]), self._major)
        try:
            run_on_hosts(lambda: self._execute(first), other, hosts)
        except ProgramStateError as error:  # of what they wait for; what a host raises has its place already
            raise ProgramError(f"{self.path}: {error}") from error

    def _execute(self, module: ModuleType) -> None:
        from ipusim.ipu.horovod import starter  # noqa: PLC0415 - which imports TensorFlow
        from ipusim.ipu.programs.host_processes import Starts  # noqa: PLC0415 - as above

        try:
            starter.set(self._starts or Starts(partial(_run_again, self.path, tuple(sys.argv[1:]), self._major)))
            exec(compile(self._tree, self._file, "exec"), module.__dict__)
        except (PlacedError, ProgramEnded):  # of a host that the program has started
            raise
        except IpusimError as error:
            host = machine.this_host()
            who = "" if host is None else f"host {host.rank}: "
            raise PlacedError(located(error, self._file, str(self.path), who)) from error
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            if error.code not in (None, 0):
                ended = ProgramEnded(error.code if isinstance(error.code, int) else 1)
                for note in getattr(error, "__notes__", ()):
                    ended.add_note(note)
                raise ended from None
        except Exception as error:
            self._print(error)
            raise ProgramEnded(1) from None

    def _print(self, error: Exception) -> None:
        """Print what the program raised, without the lines that led to its own."""
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename != self._file:
            step = step.tb_next
        traceback.print_exception(type(error), error, step)


def _run_on(path: Path, arguments: Sequence[str], tensorflow: int | None, host: machine.Host) -> None:
    """Run a program in a process of one of its hosts."""
    machine.run_on(host, lambda: _run_again(path, arguments, tensorflow))


def _run_again(path: Path, arguments: Sequence[str], tensorflow: int | None, **options: Any) -> None:
    """Run a program that another process runs as well."""
    ProgramFile(path).run(arguments, tensorflow=tensorflow, **options)


def _parsed(path: Path) -> ast.Module:
    if path.is_dir():
        raise FileError(f"{path}: expected a program, a Python file, got a folder")
    try:
        with open_file(path) as file:
            return ast.parse(file.read(), str(path))
    except FileNotFoundError:
        near = did_you_mean(path.stem, sorted(other.stem for other in path.parent.glob(f"*{_SUFFIX}")))
        near = near.removesuffix("?") + f"{_SUFFIX}?" if near else ""
        raise FileError(f"{path}: expected a program, a Python file, got no such file{near}") from None
    except SyntaxError as error:
        raise FileError(f"{error.filename}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from None
    except ValueError as error:  # a null character, in its name or in its text
        raise FileError(f"{path}: expected a program, a Python file, got what is none: {error}") from None


def _main(file: str) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__ = file
    return module


@contextmanager
def _as_main(path: Path, file: str, arguments: Sequence[str]) -> Iterator[ModuleType]:
    """Give the module ``__main__`` of a program; inside the block it is that, and has its arguments."""
    module = _main(file)
    before = sys.modules.get("__main__"), sys.argv, sys.path
    sys.modules["__main__"] = module
    sys.argv, sys.path = [str(path), *arguments], [str(path.resolve().parent), *sys.path]
    try:
        yield module
    finally:
        main, sys.argv, sys.path = before
        if main is not None:
            sys.modules["__main__"] = main
