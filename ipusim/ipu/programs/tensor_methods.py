"""Methods of TensorFlow's tensors that arrays of NumPy do not have, such as ``get_shape``, in the code of a program.

In stages a program computes with arrays. Its code, and that of modules of its own, is compiled so that a call such as
``x.get_shape().as_list()`` finds the method for an array too. What has the method itself is called as it stands.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.tensorflow.shaping import TensorShape


def _set_shape(value: Any, shape: Any) -> None:
    """Do nothing for the shape that a tensor has; raises ProgramError for another."""
    axes, expected = tuple(value.shape), TensorShape(shape)
    if len(axes) != len(expected) or any(
        None not in (here, there) and here != there for here, there in zip(axes, expected, strict=True)
    ):
        raise ProgramError(f"Tensor's shape {axes} is not compatible with supplied shape {list(expected)}.")


#: Each method with what has a form that it is offered for, and what it does.
_METHODS: Final[dict[str, tuple[Callable[[Any], bool], Callable[..., Any]]]] = {
    "as_list": (lambda value: isinstance(value, tuple), list),
    "get_shape": (lambda value: hasattr(value, "shape"), lambda value: TensorShape(value.shape)),
    "numpy": (lambda value: isinstance(value, np.ndarray | np.generic), lambda value: np.asarray(value)[()]),
    "set_shape": (lambda value: hasattr(value, "shape"), _set_shape),
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


def compiled(tree: ast.Module, file: str) -> CodeType:
    """Return the code of a module, which :func:`run` runs."""
    return compile(_Calls().visit(tree), file, "exec")


def run(code: CodeType, module: ModuleType) -> None:
    """Run the code of :func:`compiled` as that of a module."""
    module.__dict__.update(_CALLED)
    exec(code, module.__dict__)


class _Loader(SourceFileLoader):
    """Loader of a module of the user's program; no bytecode is written beside its file."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code."""
        path = self.get_filename(fullname)
        return compiled(ast.parse(self.get_data(path), path), path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the code."""
        run(self.get_code(module.__name__), module)


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
def in_own_modules() -> Iterator[None]:
    """Compile the modules of the user's program that are imported in the block with these methods too."""
    finder = _OwnModules()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
