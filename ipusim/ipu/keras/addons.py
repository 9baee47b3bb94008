"""``ipu_tensorflow_addons.keras.layers`` of TensorFlow 2.6: Graphcore's layers, whose LSTM has its states apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ipusim.ipu.keras import layers
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.keras.recurrent_layer import RecurrentLayer


class PopnnLSTM(layers.PopnnLSTM):
    """Graphcore's Keras ``LSTM``, which takes states as (h, c), and returns outputs, h and c."""

    kind = "popnn_lstm"

    def _from_state(self, value: Any) -> Sequence[Any]:
        return RecurrentLayer._from_state(self, value)

    def _with_state(self, y: Any, states: Sequence[Any]) -> Any:
        return y, *states


_NAMES: Final = (
    "Dropout Embedding GRU GroupNormalization InstanceNormalization LayerNormalization PopnnGRU RecomputationCheckpoint"
)
__getattr__, __dir__ = offering(
    "ipu_tensorflow_addons.keras.layers",
    in_module("ipusim.ipu.keras.layers", _NAMES) | dict.fromkeys(("LSTM", "PopnnLSTM"), f"{__name__}:PopnnLSTM"),
)
