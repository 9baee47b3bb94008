"""Keras' layers as such: their names, weights and layers inside, and calls on arrays or on symbolic tensors."""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from operator import methodcaller
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, functions
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.keras.pipeline_stages import pipeline_stage
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.initializers import Initializer, drawn, initializer_of
from ipusim.ipu.runtime.names import counts, in_stage, scope, unique
from ipusim.ipu.runtime.program_state import seed_of
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow.keras.symbolic import (
    TRIED,
    Called,
    KerasTensor,
    Node,
    batched,
    is_symbolic,
    mapped_tensors,
)
from ipusim.ipu.tensorflow.variables import Weight, free_name, is_trying, may_change, on_host, trying

#: Attributes whose variables are weights already, or states that recurrent layers carry on, which are no weights.
_STORES: Final = frozenset({"_weights", "_never_trained", "_variables", "_carried"})


def snake_case(name: str) -> str:
    """Return the name of a class as Keras writes it in those of layers, losses and metrics."""
    result = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name.lstrip("_"))
    return re.sub("([a-z])([A-Z])", r"\1_\2", result).lower()


class Layer(Called):
    """Base of all layers. A subclass makes weights in ``build``, with add_weight, and computes in ``call``.

    Attributes:
        built: whether its weights have been made.
        in_model: whether it is in a model, which has its weights.
        inbound_nodes: its calls on symbolic tensors.
        pipeline_stage: of the scope that it was made in; None for none.
    """

    #: What its name begins with, where none is given.
    kind: ClassVar[str] = "layer"
    #: Whether it has no weights, and can be called anywhere.
    is_plain: ClassVar[bool] = False
    #: Whether ``call`` is told if it trains.
    _takes_training: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name a subclass's layers after it, as Keras does, unless it says how; find out what its ``call`` takes."""
        super().__init_subclass__(**kwargs)
        cls._takes_training = takes(cls.call, "training")
        if "kind" not in vars(cls):
            cls.kind = snake_case(cls.__name__)

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        """Take a name; raises ProgramTypeError for unknown arguments and ones of other types."""
        for argument in kwargs.keys() - {"input_shape", "batch_input_shape", "batch_size", "dynamic"}:
            raise ProgramTypeError(f"{type(self).__name__}() got an unexpected keyword argument {argument!r}")
        self._explicit_name = None if name is None else checks.text("name", name)
        self._trainable = checks.truth("trainable", trainable)
        self._dtype = self._explicit_dtype = None if dtype is None else checks.dtype("dtype", dtype, "biuf")
        self._explicit_input_shape = _explicit_shape(kwargs)
        self._begin()

    def _begin(self) -> None:
        """Begin without weights, calls and a position in a model."""
        self._home: str | None = None
        self._name, self._position = "", 0
        self._weights: list[Weight] = []
        self._never_trained: list[NamedVariable] = []  # whatever becomes of the layer
        self.built = self.in_model = False
        self.inbound_nodes: list[Node] = []
        self.pipeline_stage = pipeline_stage()

    @property
    def name(self) -> str:
        """Its name; where none was given, that of its kind until it is in a model, or is called in a stage."""
        return self._explicit_name or self._name or self.kind

    @property
    def path(self) -> str:
        """Its name behind those of the model and the layers that it is in."""
        return f"{self._home or ''}{self.name}"

    @property
    def trainable(self) -> bool:
        """Whether optimizers change its weights."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = checks.truth("trainable", value)
        untrained = (item for item in self._attribute_variables() if not item.made_trainable)
        never = set(map(id, (*self._never_trained, *untrained)))
        for weight in self._own_weights():
            weight.trainable = self._trainable and id(weight) not in never
        for layer in self.sublayers():
            layer.trainable = value

    def sublayers(self) -> Iterator[Layer]:
        """Yield the layers that are its attributes, or in lists or dictionaries that are, in the order of these."""
        found = (leaf for value in vars(self).values() for leaf in leaves(value) if isinstance(leaf, Layer))
        yield from {id(layer): layer for layer in found}.values()

    @property
    def weights(self) -> list[NamedVariable]:
        """Its weights and those of the layers in it."""
        weights = [*self._own_weights(), *(weight for layer in self.sublayers() for weight in layer.weights)]
        return list({id(weight): weight for weight in weights}.values())

    def _own_weights(self) -> Iterable[NamedVariable]:
        """Return its weights without those of the layers in it."""
        return [*self._weights, *self._attribute_variables()]

    def _attribute_variables(self) -> Iterator[NamedVariable]:
        """Yield variables that are attributes, or in lists or dictionaries that are, but for weights it has made."""
        own = set(map(id, self._weights))
        for name, value in vars(self).items():
            if name not in _STORES:
                yield from (leaf for leaf in leaves(value) if isinstance(leaf, NamedVariable) and id(leaf) not in own)

    @property
    def trainable_weights(self) -> list[NamedVariable]:
        """Those that optimizers change."""
        return [weight for weight in self.weights if weight.trainable]

    @property
    def non_trainable_weights(self) -> list[NamedVariable]:
        """Those that they do not."""
        return [weight for weight in self.weights if not weight.trainable]

    variables = weights
    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    def get_weights(self) -> list[Array]:
        """Return copies of the values of all weights."""
        return [weight.numpy() for weight in self.weights]

    def set_weights(self, weights: Sequence[npt.ArrayLike]) -> None:
        """Set the values of all weights; raises ProgramError for another number or shape of them, and sets none."""
        own = self.weights
        if len(weights) != len(own):
            raise ProgramError(
                f'You called `set_weights(weights)` on layer "{self.name}" with a weight list of length '
                f"{len(weights)}, but the layer was expecting {len(own)} weights."
            )
        result = [item.check(value) for item, value in zip(own, weights, strict=True)]
        for item, value in zip(own, result, strict=True):
            item.set(value)

    def count_params(self) -> int:
        """Return the number of elements of all weights."""
        return sum(int(np.prod(weight.shape)) for weight in self.weights)

    def add_weight(
        self,
        name: str | None = None,
        shape: Any = (),
        dtype: Any = None,
        initializer: Any = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> Weight:
        """Make a weight, by default drawn as Keras' glorot_uniform; raises as initializers and checks do."""
        own = "weight" if name is None else checks.text("name", name)
        axes = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
        kind = np.dtype(self._weight_dtype if dtype is None else dtype)
        chosen = initializer_of("glorot_uniform" if initializer is None else initializer)

        def draw() -> Array:
            if not isinstance(chosen, Initializer):
                return np.asarray(chosen(axes), kind)
            return drawn(chosen, axes, kind, (seed_of(chosen.seed), self._position, zlib.crc32(own.encode())))

        return self._keep(own, axes, kind, draw, trainable)

    def _keep(
        self, own: str, shape: tuple[int, ...], dtype: Any, draw: Callable[[], Array], trainable: bool = True
    ) -> Weight:
        result = Weight(lambda: self.path, own, shape, dtype, draw, trainable and self._trainable)
        self._weights.append(result)
        if not trainable or result.dtype.kind != "f":
            self._never_trained.append(result)
        return result

    @property
    def _weight_dtype(self) -> Any:
        return np.float32 if self._dtype is None else self._dtype

    def build(self, input_shape: Any) -> None:
        """Make the weights; ``input_shape`` has None for the batch."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the layer gives."""
        return inputs

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that the base knows: name, trainable, and dtype and batch_input_shape where given.

        Raises UnsupportedProgramError in Keras' words for a subclass with others, which says them itself.
        """
        known = inspect.signature(type(self).__init__).parameters.values()
        own = {item.name for item in known if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)}
        if type(self).get_config is Layer.get_config and own - {"self", "name", "trainable", "dtype"}:
            raise UnsupportedProgramError(
                f"Layer {type(self).__name__} has arguments in `__init__` and therefore must override `get_config`."
            )
        result: dict[str, Any] = {"name": self.name, "trainable": self.trainable}
        if self._explicit_input_shape is not None:
            result["batch_input_shape"] = self._explicit_input_shape
        return result if self._explicit_dtype is None else result | {"dtype": self._explicit_dtype.name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a layer of what ``get_config`` gave; raises as making one does."""
        return cls(**config)

    def copied(self) -> Layer:
        """Return a layer with the same arguments, and none of the weights and calls."""
        result: Layer = type(self).from_config(self.get_config())
        return result

    @property
    def dtype(self) -> str:
        """The dtype of its weights, float32 where nothing says it."""
        return str(np.dtype(self._weight_dtype).name)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape that it gives for inputs of a shape, both with None for the batch."""
        shape = tuple(input_shape)
        with trying():
            value = self.copied()(KerasTensor((None, *shape[1:]), self._weight_dtype))
        return mapped_tensors(lambda item: (shape[0], *item.shape[1:]), value)

    @property
    def losses(self) -> list[Any]:
        """None: whatever is trained stands in the loss that compile is given."""
        return []

    def add_loss(self, losses: Any, **kwargs: Any) -> None:
        """Refuse. Raises UnsupportedProgramError."""
        raise UnsupportedProgramError(
            f"{type(self).__name__}.add_loss is not simulated: give the value as an output of the model, with a loss "
            "of its own in compile()"
        )

    def add_metric(self, value: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse. Raises UnsupportedProgramError."""
        raise UnsupportedProgramError(
            f"{type(self).__name__}.add_metric is not simulated: give the metric to compile(metrics=...), as a "
            "function of labels and predictions"
        )

    def __call__(self, inputs: Any, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Return what the layer gives for arrays in a stage, or for symbolic tensors."""
        if is_symbolic((inputs, args, kwargs)):
            return self._noted((inputs, *args), kwargs if training is None else kwargs | {"training": training})
        return self._run(inputs, *args, training=training, **kwargs)

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if not functions.inside() and (self.in_model or self.built or self.is_plain):
            with on_host():
                return self._run(inputs, *args, training=training, **kwargs)
        functions.check_inside(self.name)
        if not is_trying():
            self._settle()
        self._build_for(inputs)
        return self._call(inputs, *args, training=training, **kwargs)

    def _call(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if training is not None and self._takes_training:
            kwargs["training"] = training
        return self.call(inputs, *args, **kwargs)

    def _settle(self) -> None:
        """Count in the program that is running, and be named by it where the layer is in no model."""
        called = counts()
        if not self.in_model:
            automatic = self._explicit_name or unique(self.kind)
            if self._home is None:
                self._home, self._name, self._position = scope().prefix, automatic, called.layers
        called.layers += 1
        if called.owners.setdefault(self.path, self) is not self and scope().reuse is False:
            raise ProgramError(f"The name {self.path!r} is used by two layers of the program: all names must be unique")

    def _build_for(self, inputs: Any) -> None:
        if self.built:
            return
        shape = mapped(lambda item: (None, *np.shape(item)[1:]), inputs)
        self._dtype = self._dtype or _float_of(inputs)
        with functions.Surrounded(**({} if may_change() or in_stage() else {"lookup": None})):
            self.build(shape)  # whose variables are made once, on the host
        self.built = True
        if not self._trainable:
            self.trainable = False  # also of variables that are attributes

    def _noted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the symbolic tensors of a call."""
        stage = pipeline_stage()
        node = Node(self, args, kwargs, len(self.inbound_nodes), self.pipeline_stage if stage is None else stage)
        node.outputs = self._gives(node)
        self.inbound_nodes.append(node)
        return node.outputs

    def _gives(self, node: Node) -> Any:
        """Return the tensors of a call, by trying the layer on zeros of two batches."""
        values: list[Any] = []
        for batch in TRIED:
            args, kwargs = mapped_tensors(methodcaller("zeros", batch), (node.args, dict(node.kwargs)))
            with trying():
                self._build_for(args[0])
                values.append(self._call(*args, **{"training": None} | kwargs))
        others: list[Any] = []
        mapped(others.append, values[1])
        shapes = iter(map(np.shape, others))
        return mapped(lambda item: KerasTensor(batched(np.shape(item), next(shapes)), item.dtype, node), values[0])

    def adopt(self, home: str, name: str, places: Iterator[int]) -> None:
        """Join a model: take names, and a position among its layers, which seeds random draws."""
        if not self.in_model:
            self.in_model, self._home, self._name, self._position = True, home, name, next(places)
        adopt_all(list(self.sublayers()), f"{self.path}/", places)


def adopt_all(layers: Sequence[Layer], home: str, places: Iterator[int] | None = None) -> None:
    """Name layers that have no name yet, each otherwise; raises ProgramError for two of one name."""
    order = count() if places is None else places
    taken: dict[str, Layer] = {}
    for layer in layers:
        named = layer._explicit_name is not None or layer.in_model
        if named and taken.setdefault(layer.name, layer) is not layer:
            raise ProgramError(
                f'The name "{layer.name}" is used 2 times in the model. All layer names should be unique.'
            )
    for layer in layers:
        name = layer.name
        if layer._explicit_name is None and not layer.in_model:
            name = free_name(layer.kind, taken)
            taken[name] = layer
        layer.adopt(home, name, order)


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Tell whether a function takes an argument of this name."""
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def _float_of(inputs: Any) -> Any:
    """Return the floating-point dtype of the first array that has one, float32 for none or for float64."""
    kinds = [leaf.dtype for leaf in leaves(inputs) if hasattr(leaf, "dtype") and leaf.dtype.kind == "f"]
    return kinds[0] if kinds and kinds[0] != np.float64 else np.dtype(np.float32)


def _explicit_shape(kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the shape of a layer's input with the batch, where its arguments say it."""
    if kwargs.get("batch_input_shape") is not None:
        return tuple(kwargs["batch_input_shape"])
    if kwargs.get("input_shape") is not None:
        value = kwargs["input_shape"]
        return (None, *(value if isinstance(value, list | tuple) else [value]))
    return None
