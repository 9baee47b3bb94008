"""Run callbacks for every step of an execution; tf_keras alone calls them once per execution."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Any


def install() -> None:
    """Call callbacks for every step after an execution, if the execution has results per step."""
    callback_list = import_module("tf_keras.src.callbacks").CallbackList
    original = callback_list._call_batch_hook

    @wraps(original)
    def call_for_every_step(self: Any, mode: str, hook: str, batch: int, logs: Any = None) -> None:
        execution = getattr(self.model, f"{mode}_function", None)
        results = getattr(execution, "each_step", ()) if hook == "end" else ()
        first_step = batch - len(results) + 1
        for step, result in enumerate(results[:-1], first_step):
            original(self, mode, "end", step, {"outputs": result} if mode == "predict" else result)
            original(self, mode, "begin", step + 1)
        if results and mode == "predict":
            logs = {"outputs": results[-1]}
        original(self, mode, hook, batch, logs)

    callback_list._call_batch_hook = call_for_every_step
