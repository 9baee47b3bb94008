"""Offer the layer that ``ipu_tensorflow_addons`` changes in Graphcore's Keras: an LSTM with two separate states."""

from __future__ import annotations

from ipusim.ipu.keras.recurrent import StatesApart as PopnnLSTM

__all__ = ["LSTM", "PopnnLSTM"]

LSTM = PopnnLSTM
