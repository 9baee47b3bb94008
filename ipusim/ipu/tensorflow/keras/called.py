"""What a Keras layer's calls on symbolic tensors say of it: its input, its output and their shapes."""

from __future__ import annotations

from typing import Any

from ipusim.errors import ConfigAttributeError, ProgramError
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node, mapped_tensors


class Called:
    """Something that has been called on symbolic tensors.

    Attributes:
        inbound_nodes: the calls.
    """

    inbound_nodes: list[Node]

    @property
    def name(self) -> str:
        """Its name; whoever is called says it."""
        raise NotImplementedError

    @property
    def input(self) -> Any:
        """The tensor that its only call takes, or several; raises ConfigAttributeError for none or several calls."""
        return _taken(self._only("input"))

    @property
    def output(self) -> Any:
        """The tensor that its only call gives, or several; raises ConfigAttributeError for none or several calls."""
        return self._only("output").outputs

    @property
    def input_shape(self) -> Any:
        """The shape of its input; raises as :attr:`input` does."""
        return mapped_tensors(_shape, self.input)

    @property
    def output_shape(self) -> Any:
        """The shape of its output; raises as :attr:`output` does."""
        return mapped_tensors(_shape, self.output)

    def get_input_at(self, node_index: int) -> Any:
        """Return what a call takes; raises ProgramError for one that there is not."""
        return _taken(self._at(node_index))

    def get_output_at(self, node_index: int) -> Any:
        """Return what a call gives; raises ProgramError for one that there is not."""
        return self._at(node_index).outputs

    def _at(self, node_index: int) -> Node:
        calls = len(self.inbound_nodes)
        if not -calls <= node_index < calls:
            raise ProgramError(
                f"Asked to get tensor at node {node_index}, but the layer has only {calls} inbound nodes."
            )
        return self.inbound_nodes[node_index]

    def _only(self, what: str) -> Node:
        if not self.inbound_nodes:
            raise ConfigAttributeError(f"Layer {self.name} has no inbound nodes.")
        if len(self.inbound_nodes) > 1:
            raise ConfigAttributeError(
                f'Layer {self.name} has multiple inbound nodes, hence the notion of "layer {what}" is ill-defined. Use '
                f"`get_{what}_at(node_index)` instead."
            )
        return self.inbound_nodes[0]


def _taken(node: Node) -> Any:
    found = node.inputs
    return found[0] if len(found) == 1 else found


def _shape(tensor: KerasTensor) -> Any:
    return tensor.shape
