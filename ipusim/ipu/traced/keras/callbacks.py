"""Run callbacks for every step of an execution; tf_keras alone calls them once per execution."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Any


def install() -> None:
    """Let callbacks run for every step after an execution, if the execution has step results."""
    kind = import_module("tf_keras.src.callbacks").CallbackList
    original = kind._call_batch_hook

    @wraps(original)
    def call(self: Any, mode: str, hook: str, batch: int, logs: Any = None) -> None:
        execution = getattr(self.model, f"{mode}_function", None)
        results = getattr(execution, "each_step", ()) if hook == "end" else ()
        first = batch - len(results) + 1
        for step, result in enumerate(results[:-1], first):
            original(self, mode, "end", step, {"outputs": result} if mode == "predict" else result)
            original(self, mode, "begin", step + 1)
        if results and mode == "predict":
            logs = {"outputs": results[-1]}
        original(self, mode, hook, batch, logs)

    kind._call_batch_hook = call
