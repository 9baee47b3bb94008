"""Offer layers of ``ipu_tensorflow_addons`` for TensorFlow 2.6: an LSTM with separate states, and others."""

from __future__ import annotations

from ipusim.ipu.keras.layers import (
    GRU,
    Dropout,
    Embedding,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    PopnnGRU,
    RecomputationCheckpoint,
)
from ipusim.ipu.keras.recurrent import StatesApart as PopnnLSTM

__all__ = [
    "GRU",
    "LSTM",
    "Dropout",
    "Embedding",
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
]

LSTM = PopnnLSTM
