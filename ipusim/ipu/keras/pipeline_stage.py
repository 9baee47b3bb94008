"""The pipeline stage that Keras' layers, or calls of them, are assigned to where they are written."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final

from ipusim.errors import ProgramError
from ipusim.ipu import checks

#: The stage of the innermost scope; None outside of any.
_STAGE: Final[ContextVar[int | None]] = ContextVar("pipeline_stage", default=None)


def pipeline_stage() -> int | None:
    """Return the stage of the scope that the caller is in, None for none."""
    return _STAGE.get()


class PipelineStage:
    """A scope within which Keras layers, and calls of Keras layers, are assigned to a pipeline stage.

    The stage of a call goes before the one that its layer was made in.
    """

    def __init__(self, stage: int) -> None:
        """Take the stage's number; raises ProgramTypeError and ProgramError for what is none."""
        self._stage = checks.whole("stage", stage)
        self._token: Token[int | None] | None = None

    def __enter__(self) -> PipelineStage:
        """Begin the scope; raises ProgramError inside of another."""
        if _STAGE.get() is not None:
            raise ProgramError(
                f"PipelineStage: expected no other PipelineStage around it, got {self._stage} in {_STAGE.get()}"
            )
        self._token = _STAGE.set(self._stage)
        return self

    def __exit__(self, *_: object) -> None:
        """End the scope."""
        assert self._token is not None
        _STAGE.reset(self._token)
