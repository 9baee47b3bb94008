"""Run a program, a Python file, as ``python program.py`` runs it."""

from __future__ import annotations

import ast
import contextvars
import ctypes
import os
import sys
import threading
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

from ipusim.api import machine
from ipusim.base.errors import FileError, IpusimError, ProgramError, ProgramStateError
from ipusim.base.files import open_file
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.imports.hook import message_with_line

#: Suffix of programs.
_SUFFIX: Final = ".py"


class ProgramEnded(Exception):  # noqa: N818 - a program's end is not always an error
    """End of a program by an exception or by a nonzero exit code.

    Attributes:
        code: exit code.
    """

    def __init__(self, code: int) -> None:
        """Set the exit code."""
        super().__init__(code)
        self.code = code


class ProgramFile:
    """Program that has been read and parsed.

    Attributes:
        path: path of the file.
        name: file name without suffix.
        description: first paragraph of the docstring, in one line.
    """

    def __init__(self, path: Path) -> None:
        """Read and parse the file; raises FileError if the file is not readable or no Python."""
        self.path, self.name = path, path.stem
        self._file = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links, as Python does
        self._tree = _parse(path)
        paragraph, _, _ = (ast.get_docstring(self._tree) or "").partition("\n\n")
        self.description = " ".join(paragraph.split())

    def run(
        self,
        arguments: Sequence[str] = (),
        hosts: int | None = None,
        tensorflow: int | None = None,
    ) -> None:
        """Run the program as ``__main__``, with its folder on ``sys.path``, until its threads end.

        TensorFlow executes the program and traces computations placed on simulated IPUs. The program's configuration
        and compiled programs end with it.

        Args:
            arguments: command-line arguments of the program.
            hosts: number of simulated hosts, like processes of ``mpirun``; None for a single host.
            tensorflow: TensorFlow's major version as seen by the program, 1 or 2; by default inferred from names.

        Raises:
            ProgramError: if this package refuses the program or hosts wait for different events. The error names file
                and line of the program and the rank of the host.
            ProgramEnded: if the program raises another exception, printed as Python prints it, or ends with an exit
                code that is not 0.
        """
        earlier_threads = set(threading.enumerate())
        with _as_main(self.path, self._file, arguments) as module, self._imports(tensorflow):
            try:
                if hosts is None:
                    contextvars.copy_context().run(self._execute, module)
                else:
                    self._execute_on(hosts, module)
            except BaseException as end:
                if isinstance(end, ProgramEnded):
                    for note in getattr(end, "__notes__", ()):  # hosts that wait for the ended host
                        print(f"{self.path}: {note} (exit code {end.code})", file=sys.stderr)
                for thread in self._new_threads(earlier_threads):
                    if self._is_in_program(thread):  # the thread may wait forever for results
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
                        )
                raise
            for thread in self._new_threads(earlier_threads):
                thread.join()

    @staticmethod
    def _new_threads(earlier_threads: Collection[threading.Thread]) -> list[threading.Thread]:
        """Return the threads that Python waits for, except ``earlier_threads``."""
        return [thread for thread in threading.enumerate() if thread not in earlier_threads and not thread.daemon]

    def _is_in_program(self, thread: threading.Thread) -> bool:
        """Tell whether a thread runs a function of the program's folder."""
        folder = f"{Path(self._file).resolve().parent}{os.sep}"
        frame = sys._current_frames().get(thread.ident or 0)
        files = [step.f_code.co_filename for step, _ in traceback.walk_stack(frame)] if frame else []
        return self._file in files or any(file.startswith(folder) for file in files)

    @contextmanager
    def _imports(self, tensorflow: int | None) -> Iterator[None]:
        """Prepare the imports of the program's modules in the block."""
        from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415 - loads TensorFlow
        from ipusim.ipu.imports.version import written_for  # noqa: PLC0415 - as above

        self._major = tensorflow or written_for(self._tree, Path(self._file).parent)[0]
        with hosted(self._major):
            yield

    def _execute_on(self, hosts: int, module: ModuleType) -> None:
        """Run the program on several hosts; this process is the first, with ``module`` as its ``__main__``."""
        from ipusim.ipu.programs.host_processes import run_on_hosts  # noqa: PLC0415 - loads TensorFlow

        host_start = partial(_run_on, self.path, tuple(sys.argv[1:]), self._major)
        try:
            run_on_hosts(lambda: self._execute(module), host_start, hosts)
        except ProgramStateError as error:  # from waiting hosts; a host's own error already has a place
            raise ProgramError(f"{self.path}: {error}") from error

    def _execute(self, module: ModuleType) -> None:
        """Run the program's code in a module.

        Raises:
            ProgramError: if ipusim refuses the program.
            ProgramEnded: if the program raises another exception, or ends with an exit code that is not 0.
        """
        try:
            exec(compile(self._tree, self._file, "exec"), module.__dict__)
        except IpusimError as error:
            host = machine.this_host()
            host_name = "" if host is None else f"host {host.rank}: "
            raise ProgramError(message_with_line(error, self._file, str(self.path), host_name)) from error
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            if error.code not in (None, 0):
                raise ProgramEnded(error.code if isinstance(error.code, int) else 1) from None
        except Exception as error:
            self._print_exception(error)
            raise ProgramEnded(1) from None

    def _print_exception(self, error: Exception) -> None:
        """Print the program's exception, without frames above the program."""
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename != self._file:
            step = step.tb_next
        traceback.print_exception(type(error), error, step)


def _run_on(path: Path, arguments: Sequence[str], tensorflow: int | None, host: machine.Host) -> None:
    """Run a program in the process of a host."""
    machine.run_on(host, lambda: ProgramFile(path).run(arguments, tensorflow=tensorflow))


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file; raises FileError if the file is not readable or no Python."""
    if path.is_dir():
        raise FileError(f"{path}: expected a program, a Python file, got a folder")
    try:
        with open_file(path) as file:
            return ast.parse(file.read(), str(path))
    except FileNotFoundError:
        suggestion = did_you_mean(path.stem, sorted(sibling.stem for sibling in path.parent.glob(f"*{_SUFFIX}")))
        suggestion = suggestion.removesuffix("?") + f"{_SUFFIX}?" if suggestion else ""
        raise FileError(f"{path}: expected a program, a Python file, got no such file{suggestion}") from None
    except SyntaxError as error:
        raise FileError(f"{error.filename or path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from None
    except ValueError as error:  # a null character in the path or in the text
        raise FileError(f"{path}: expected a program, a Python file, got another file: {error}") from None


def _empty_main(file: str) -> ModuleType:
    """Return an empty module ``__main__`` for a file."""
    module = ModuleType("__main__")
    module.__file__ = file
    return module


@contextmanager
def _as_main(path: Path, file: str, arguments: Sequence[str]) -> Iterator[ModuleType]:
    """Install a new ``__main__`` module with the program's arguments in the block; yields the module."""
    module = _empty_main(file)
    original_state = sys.modules.get("__main__"), sys.argv, sys.path
    sys.modules["__main__"] = module
    sys.argv, sys.path = [str(path), *arguments], [str(path.resolve().parent), *sys.path]
    try:
        yield module
    finally:
        main, sys.argv, sys.path = original_state
        if main is not None:
            sys.modules["__main__"] = main
