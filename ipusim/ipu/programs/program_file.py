"""A program, a Python file, that runs as ``python program.py`` runs it, with methods of TensorFlow's tensors.

In stages a program computes with arrays of NumPy, which have no methods such as ``get_shape``. Its code, and that of
modules of its own, is compiled so that a call such as ``x.get_shape().as_list()`` finds the method for an array too.
What has the method itself is called as it stands.
"""

from __future__ import annotations

import ast
import contextvars
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from ipusim.api import machine
from ipusim.base.errors import FileError, IpusimError, ProgramError, ProgramStateError
from ipusim.base.files import open_file
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.horovod import on_hosts, rank
from ipusim.ipu.imports.hook import located
from ipusim.ipu.runtime.import_names import install
from ipusim.ipu.runtime.loop_body import body_record
from ipusim.ipu.runtime.tensor_shape import TensorShape

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
        _traced: bool = True,
    ) -> None:
        """Run it as ``__main__``, with its folder on ``sys.path``, until its last line and the end of its threads.

        Its imports of TensorFlow, Keras, Horovod and PopDist find ipusim's modules; ``tensorflow`` is the major version
        that it is told, 1 or 2, by default by the names that it uses. What it has configured and compiled ends with it.
        With ``hosts`` it runs on so many simulated ones, as processes of ``mpirun`` do. ``starts`` calls a function on
        so many hosts for ``horovod.run``, by default in processes that run the program up to that call.

        TensorFlow runs it, and traces what it places on simulated IPUs. ``_traced`` is False for programs of kinds
        that TensorFlow does not run yet.

        Raises ProgramError, with file and line of the program and the number of the host, for what this package
        refuses, also of hosts that do not wait for the same; ProgramEnded for another exception, which is printed as
        Python prints it, and where it leaves with a code that is not 0.
        """
        before, self._starts = set(threading.enumerate()), starts
        with _as_main(self.path, self._file, arguments) as module, self._imports(tensorflow, _traced):
            try:
                if hosts is None:
                    contextvars.copy_context().run(self._execute, module)
                else:
                    self._execute_on(hosts, module)
            except ProgramEnded as end:
                for note in getattr(end, "__notes__", ()):  # of hosts that wait for the one that has ended
                    print(f"{self.path}: {note} (exit code {end.code})", file=sys.stderr)
                raise
            for thread in set(threading.enumerate()) - before:
                if not thread.daemon:
                    thread.join()

    @contextmanager
    def _imports(self, tensorflow: int | None, traced: bool) -> Iterator[None]:
        """Give the program's modules their imports in the block."""
        self._traced, self._major = traced, tensorflow
        if not traced:
            with _in_own_modules(), install(tensorflow):
                yield
            return
        from ipusim.ipu.imports.hosted import hosted  # noqa: PLC0415 - which imports TensorFlow
        from ipusim.ipu.imports.version import written_for  # noqa: PLC0415 - as above

        major = tensorflow or written_for(self._tree, Path(self._file).parent)[0]
        self._major = major
        with hosted(major):
            yield

    def _execute_on(self, hosts: int, first: ModuleType) -> None:
        """Run it on hosts, the first of which has the module ``first``; ``__main__`` is that of the one that runs."""
        if self._traced:
            from ipusim.ipu.programs.host_processes import run_on_hosts  # noqa: PLC0415 - which imports TensorFlow

            other = partial(_run_on, self.path, tuple(sys.argv[1:]), self._major)
            try:
                run_on_hosts(lambda: self._execute(first), other, hosts)
            except ProgramStateError as error:  # of what they wait for; what a host raises has its place already
                raise ProgramError(f"{self.path}: {error}") from error
            return
        modules = [first, *(_main(self._file) for _ in range(1, hosts))]

        def turn(host: int) -> None:
            sys.modules["__main__"] = modules[host]

        try:
            on_hosts(lambda: self._execute(modules[rank()]), hosts, turn)
        except ProgramStateError as error:  # of what they wait for; what a host raises has its place already
            raise ProgramError(f"{self.path}: {error}") from error

    def _execute(self, module: ModuleType) -> None:
        try:
            if self._traced:
                from ipusim.ipu.graphcore.horovod import starter  # noqa: PLC0415 - which imports TensorFlow
                from ipusim.ipu.programs.host_processes import Starts  # noqa: PLC0415 - as above

                again = partial(_run_again, self.path, tuple(sys.argv[1:]), self._major)
                starter.set(self._starts or Starts(again))
                exec(compile(self._tree, self._file, "exec"), module.__dict__)
            else:
                _run(_compiled(self._tree, self._file), module)
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


def _set_shape(value: Any, shape: Any) -> None:
    """Do nothing for the shape that a tensor has; raises ProgramError for another."""
    axes, expected = tuple(value.shape), TensorShape(shape)
    if not expected.takes(axes):
        raise ProgramError(f"Tensor's shape {axes} is not compatible with supplied shape {list(expected)}.")


def _read(variable: Any) -> Any:
    """Return what a body was given for a variable; raises UnsupportedProgramError behind the variable's update."""
    record = body_record()
    if record is not None and (name := record.name_of(variable)) is not None:
        record.check_read(name)
    return variable


#: Each method with what has a form that it is offered for, and what it does.
_METHODS: Final[dict[str, tuple[Callable[[Any], bool], Callable[..., Any]]]] = {
    "as_list": (lambda value: isinstance(value, tuple), list),
    "get_shape": (lambda value: hasattr(value, "shape"), lambda value: TensorShape(value.shape)),
    "numpy": (lambda value: isinstance(value, np.ndarray | np.generic), lambda value: np.asarray(value)[()]),
    "read_value": (lambda value: hasattr(value, "shape"), _read),
    "set_shape": (lambda value: hasattr(value, "shape"), _set_shape),
    "value": (lambda value: hasattr(value, "shape"), _read),
}


def _method(value: Any, name: str) -> Any:
    """Return a method of a value by its name: its own, or one of tensors that it does not have."""
    offered, function = _METHODS[name]
    if not hasattr(value, name) and offered(value):
        return partial(function, value)
    return getattr(value, name)


def _size(axis: Any) -> Any:
    """Return the ``value`` of an axis of a shape, of which TensorFlow 1 makes objects of their own."""
    return axis if axis is None or isinstance(axis, int) else axis.value


#: The names under which a program's compiled code calls these functions.
_CALLED: Final = {"__tensor_method__": _method, "__axis_size__": _size}


class _Calls(ast.NodeTransformer):
    """Puts calls of these functions in the place of calls of methods."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Look a method up by its name."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            node.func = _call("__tensor_method__", node.func, node.func.value, ast.Constant(node.func.attr))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Take the value of an axis, as in ``x.shape[0].value``."""
        of_axis = node.attr == "value" and isinstance(node.ctx, ast.Load) and _is_axis(node.value)
        self.generic_visit(node)
        return _call("__axis_size__", node, node.value) if of_axis else node


def _is_axis(node: ast.expr) -> bool:
    if not isinstance(node, ast.Subscript):
        return False
    shape = node.value
    called = isinstance(shape, ast.Call)
    shape = shape.func if isinstance(shape, ast.Call) else shape
    return isinstance(shape, ast.Attribute) and shape.attr == ("get_shape" if called else "shape")


def _call(name: str, replaced: ast.AST, *arguments: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
    return ast.fix_missing_locations(ast.copy_location(call, replaced))


def _compiled(tree: ast.Module, file: str) -> CodeType:
    """Return the code of a module, which :func:`_run` runs."""
    return compile(_Calls().visit(tree), file, "exec")


def _run(code: CodeType, module: ModuleType) -> None:
    """Run the code of :func:`_compiled` as that of a module."""
    module.__dict__.update(_CALLED)
    exec(code, module.__dict__)


class _Loader(SourceFileLoader):
    """Loader of a module of the user's program; no bytecode is written beside its file."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code."""
        path = self.get_filename(fullname)
        return _compiled(ast.parse(self.get_data(path), path), path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the code."""
        _run(self.get_code(module.__name__), module)


class _OwnModules(MetaPathFinder):
    """Finds modules of a program's own: those of no library."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of any module, with another loader where it is the program's own."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and not _is_of_library(Path(spec.loader.path)):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def _is_of_library(file: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts) or any(
        file.is_relative_to(library) for library in _LIBRARIES
    )


_LIBRARIES: Final = (sysconfig.get_path("stdlib"), Path(__file__).parents[1])


@contextmanager
def _in_own_modules() -> Iterator[None]:
    """Compile the modules of the user's program that are imported in the block with these methods too."""
    finder = _OwnModules()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
