"""Offer what ``ipu_tensorflow_addons`` for TensorFlow 2.6 has in place of Graphcore's Keras: an LSTM of two states."""

from __future__ import annotations

from ipusim.ipu.keras.recurrent import StatesApart as PopnnLSTM

__all__ = ["LSTM", "PopnnLSTM"]

LSTM = PopnnLSTM
