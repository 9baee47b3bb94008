"""The names under which programs import TensorFlow, Keras, Horovod and PopDist, and what ipusim has for them.

``ipusim run program.py`` runs a program with its imports as they are. A script or notebook does so after

>>> import ipusim.ipu
>>> with ipusim.ipu.install():
...     from tensorflow.python.ipu.config import IPUConfig
...     from tensorflow.keras.layers import Dense
>>> IPUConfig.__module__, Dense(3).units
('ipusim.ipu.config', 3)

Nothing is written to disk. A TensorFlow that is installed beside ipusim is not imported meanwhile, and what the process
had imported of it before is there again afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from inspect import isclass, ismodule
from itertools import accumulate
from types import ModuleType
from typing import Any, Final, Self

from ipusim.base.errors import MissingImportError, MissingNameError, OptionError
from ipusim.base.near_names import did_you_mean
from ipusim.ipu.runtime.offered import Row, resolved

_TENSORFLOW: Final = "ipusim.ipu.tensorflow"
_KERAS: Final = "ipusim.ipu.tensorflow.keras"
#: Modules of TensorFlow's source that programs import in place of ``tf``, which has their names too.
_SOURCES: Final = (
    "client.session",
    "eager.def_function",
    "framework.constant_op",
    "framework.dtypes",
    "framework.ops",
    "framework.ops.array_ops",
    "framework.random_seed",
    "framework.tensor_shape",
    "ops.array_ops",
    "ops.control_flow_ops",
    "ops.custom_gradient",
    "ops.init_ops",
    "ops.math_ops",
    "ops.random_ops",
    "ops.variable_scope",
    "ops.variables",
)
#: Modules of Keras' source, in TensorFlow's, that programs import layers from.
_OF_LAYERS: Final = ("convolutional", "core", "embeddings", "merge", "normalization", "pooling", "recurrent")
#: Modules that a program imports, each with the module of ipusim that stands for it.
_MODULES: Final[dict[str, Row]] = {
    "tensorflow": _TENSORFLOW,
    "tensorflow.compat.v1": _TENSORFLOW,
    "tensorflow.compat.v2": _TENSORFLOW,
    "tensorflow.python.ipu": "ipusim.ipu",
    "tensorflow.python.ipu.ipu_optimizer": "ipusim.ipu.optimizers",  # of releases up to 1.4
    "tensorflow.python.keras": _KERAS,
    "tensorflow.python.keras.layers": f"{_KERAS}.layers",
    "tensorflow.python.data.ops.dataset_ops": f"{_TENSORFLOW}.data",
    "tensorflow.python.distribute.reduce_util": f"{_TENSORFLOW}.distribute",
    "tensorflow.python.framework.errors": f"{_TENSORFLOW}.errors",
    "tensorflow.python.framework.errors_impl": f"{_TENSORFLOW}.errors",
    "tensorflow.python.ops.losses.losses": f"{_TENSORFLOW}.losses",
    "tensorflow.python.ops.nn": f"{_TENSORFLOW}.nn",
    "tensorflow.python.ops.nn_ops": f"{_TENSORFLOW}.nn",
    "tensorflow.python.training.gradient_descent": f"{_TENSORFLOW}.train",
    "tensorflow.python.training.momentum": f"{_TENSORFLOW}.train",
    "tensorflow.python.training.optimizer": f"{_TENSORFLOW}.train",
    "tensorflow.python.training.server_lib": f"{_TENSORFLOW}.distribute",
    "keras": _KERAS,
    "keras.optimizer_v2.optimizer_v2": {"OptimizerV2": f"{_KERAS}.optimizers:Optimizer"},  # up to Keras 2.10
    "ipu_tensorflow_addons.keras.layers": "ipusim.ipu.keras.addons",
    "ipu_tensorflow_addons.keras.optimizers": f"{_KERAS}.optimizers",
    "ipu_tensorflow_addons.layers": "ipusim.ipu.rnn_ops",  # of its releases for TensorFlow 1
    "ipu_tensorflow_addons.layers.rnn_ops": "ipusim.ipu.rnn_ops",
    "ipu_tensorflow_addons.v1.layers": "ipusim.ipu.rnn_ops",
    "ipu_tensorflow_addons.v1.layers.rnn_ops": "ipusim.ipu.rnn_ops",
    "horovod": "ipusim.ipu.horovod",
    "horovod.tensorflow": "ipusim.ipu.horovod",
    "popdist": "ipusim.ipu.popdist",
    "popdist.tensorflow": "ipusim.ipu.popdist",
    **{f"tensorflow.python.{name}": _TENSORFLOW for name in _SOURCES},
    **{f"tensorflow.python.keras.layers.{name}": f"{_KERAS}.layers" for name in _OF_LAYERS},
}
#: The packages around them that hold modules and no names of their own.
_FOLDERS: Final = {
    folder for name in _MODULES for folder in accumulate(name.split("."), "{}.{}".format) if folder not in _MODULES
} - {"tensorflow.compat"}  # which TensorFlow has as an attribute
#: All of these modules; "" for a folder. Modules below them are looked up below what stands for them.
NAMES: Final[dict[str, Row]] = _MODULES | dict.fromkeys(sorted(_FOLDERS), "")
#: The folder that programs import from and TensorFlow has not as an attribute.
_NOT_BY_ATTRIBUTE: Final = "tensorflow.python"
_TENSORFLOW_1: Final = """
    AUTO_REUSE ConfigProto GraphKeys Session VariableScope app assign assign_add assign_sub compat.v1 contrib
    disable_eager_execution disable_v2_behavior disable_v2_tensorshape enable_resource_variables flags get_collection
    get_default_graph get_default_session get_local_variable get_variable get_variable_scope gfile global_variables
    global_variables_initializer glorot_normal_initializer glorot_uniform_initializer initialize_all_variables layers
    local_variables_initializer log log1p logging placeholder placeholder_with_default random_uniform
    reset_default_graph set_random_seed squared_difference to_float to_int32 trainable_variables truncated_normal
    truncated_normal_initializer variable_scope variables_initializer variance_scaling_initializer
"""
#: Names that TensorFlow 1 has and TensorFlow 2 has not: a program that imports or uses one was written for 1.
ONLY_IN_1: Final = frozenset(_TENSORFLOW_1.split())
#: The releases of TensorFlow that Graphcore's last SDKs have, by major version.
VERSIONS: Final = {1: "1.15.5", 2: "2.6.3"}


class install(MetaPathFinder):  # noqa: N801 - a function to callers
    """Make imports of TensorFlow, Keras, Horovod and PopDist find ipusim's modules.

    It holds from the call on, to the end of the process or of the ``with`` block that it opens.

    Args:
        tensorflow: the major version that ``tf.__version__`` tells, 1 or 2. Without it, 1 where the program has used or
            imported what only TensorFlow 1 has before it asks, else 2; a line on standard error says which and why.

    Raises:
        OptionError: for another version.

    Example:
        >>> with install(tensorflow=1):
        ...     import tensorflow as tf
        >>> tf.__version__
        '1.15.5'
    """

    def __init__(self, tensorflow: int | None = None) -> None:
        """Install the finder before all others, and set aside what was imported under these names."""
        if tensorflow is not None and tensorflow not in VERSIONS:
            raise OptionError("tensorflow", f"expected 1 or 2, got {tensorflow!r}")
        self._version = tensorflow
        self._sign = ""  # of TensorFlow 1: the name that told it
        self._before = {name: module for name, module in sys.modules.items() if _stands_for(name)}
        for name in self._before:
            del sys.modules[name]
        sys.meta_path.insert(0, self)

    def __enter__(self) -> Self:
        """Return the finder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Find TensorFlow where it is installed, and what had been imported of it."""
        sys.meta_path.remove(self)
        for name in [name for name in sys.modules if _stands_for(name)]:
            del sys.modules[name]
        sys.modules.update(self._before)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that ipusim has something for, None for modules of others.

        Raises:
            MissingImportError: for a module or name of TensorFlow's that is not simulated.
        """
        if not _stands_for(fullname):
            return None
        self.note(fullname.removeprefix("tensorflow."))
        home = _home(fullname)
        if home is None:
            parent, _, name = fullname.rpartition(".")
            raise MissingImportError(_lacking(parent, name) if parent else f"{name} is not simulated")
        return ModuleSpec(fullname, _Loader(home, self), is_package=True)

    def note(self, name: str) -> None:
        """Note a name of TensorFlow that the program imports or uses, which tells its version."""
        if not self._sign and name in ONLY_IN_1:
            self._sign = name

    @property
    def major(self) -> int:
        """The major version of TensorFlow that the program is for, as far as it has shown."""
        return self._version or (1 if self._sign else 2)

    def version(self) -> str:
        """Return the version of TensorFlow; one that was not given is printed to standard error with its reason."""
        if self._version is None:
            self._version = self.major
            why = f"tf.{self._sign} is of TensorFlow 1" if self._sign else "nothing so far is of TensorFlow 1 alone"
            print(f"tf.__version__ is {VERSIONS[self._version]}: {why}; --tensorflow {3 - self._version} changes it",
                  file=sys.stderr)  # fmt: skip
        return VERSIONS[self._version]


def major_version() -> int:
    """Return the major version of TensorFlow by which names behave that its versions have differently.

    It is that of the program; 1 for what imports ``ipusim.ipu.tensorflow`` by its own name.
    """
    return next((finder.major for finder in sys.meta_path if isinstance(finder, install)), 1)


def spec_below(fullname: str) -> ModuleSpec | None:
    """Return the spec of a module that a module of ``ipusim.ipu`` offers as an attribute; None where there is none."""
    home = _home(fullname)
    return None if home is None else ModuleSpec(fullname, _Loader(home), is_package=True)


class _Loader(Loader):
    """Makes the module of an import from the module or namespace that stands for it."""

    def __init__(self, home: Any, finder: install | None = None) -> None:
        self._home, self._finder = home, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, self._home, self._finder)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the names are looked up in what the module stands for."""


class _Alias(ModuleType):
    """A module under the name that a program imports, whose names are those of the module that stands for it."""

    def __init__(self, name: str, home: Any, finder: install | None) -> None:
        super().__init__(name, getattr(home, "__doc__", None))
        self._home, self._finder = home, finder

    def __getattr__(self, name: str) -> Any:
        """Return what the module of ipusim has under a name, or a module below this one; raises MissingNameError."""
        if name == "__version__" and self._finder is not None:
            return self._finder.version()
        if name == "__all__":  # for `from tensorflow.keras.layers import *`
            return dir(self)
        if name.startswith("__"):
            raise AttributeError(name)
        if self._finder is not None and self._home is sys.modules.get(_TENSORFLOW):
            self._finder.note(name)
        if f"{self.__name__}.{name}" == _NOT_BY_ATTRIBUTE:
            raise MissingNameError(
                "module 'tensorflow' has no attribute 'python': use `from tensorflow.python import ipu`"
            )
        if f"{self.__name__}.{name}" in NAMES:
            return import_module(f"{self.__name__}.{name}")
        if self._home == "":
            raise MissingNameError(_lacking(self.__name__, name))
        return getattr(self._home, name)

    def __dir__(self) -> Iterator[str]:
        """Return the public names."""
        return iter(_names(self.__name__, self._home))


def _stands_for(name: str) -> bool:
    """Tell whether a module is one that ipusim replaces."""
    return name.partition(".")[0] in _ROOTS


_ROOTS: Final = frozenset(name.partition(".")[0] for name in NAMES)


def _home(fullname: str) -> Any:
    """Return the module or namespace of ipusim for a program's module; "" for a folder, None where there is none."""
    if fullname in NAMES:
        return resolved(fullname, NAMES[fullname]) if NAMES[fullname] else ""
    parent, _, name = fullname.rpartition(".")
    above = _home(parent) if parent in NAMES or _stands_for(parent) else sys.modules.get(parent)
    if above is None or above == "":
        return None
    result = getattr(above, name, None)
    # TensorFlow's small modules are classes here, with a module's name.
    return result if ismodule(result) or (isclass(result) and result.__name__.islower()) else None


def _names(module: str, home: Any) -> list[str]:
    """Return the public names of a program's module: those of the module that stands for it, and its rows' own."""
    rows = (name.rpartition(".") for name in NAMES)
    own = [] if home == "" else [name for name in dir(home) if not name.startswith("_")]
    below = [name for parent, _, name in rows if parent == module and f"{module}.{name}" != _NOT_BY_ATTRIBUTE]
    return sorted({*own, *below})


def _lacking(module: str, name: str) -> str:
    """Return the text on a name that a module of a program does not have here."""
    return f"{module}.{name} is not simulated{did_you_mean(name, _names(module, _home(module) or ''))}"
