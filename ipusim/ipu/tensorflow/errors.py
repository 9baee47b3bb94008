"""``tf.errors``: the kinds of errors that programs catch, each one of ipusim's own.

Their ``message`` is the whole text, as TensorFlow's is.
"""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

_ERRORS: Final = "ipusim.errors"
__getattr__, __dir__ = offering(
    "tf.errors",
    {
        name: f"{_ERRORS}:{own}"
        for name, own in {
            "FailedPreconditionError": "ProgramStateError",
            "InternalError": "PlanError",
            "InvalidArgumentError": "ProgramError",
            "NotFoundError": "FileError",
            "OpError": "IpusimError",
            "ResourceExhaustedError": "OutOfMemoryError",
            "UnimplementedError": "UnsupportedProgramError",
            "OutOfRangeError": "EndOfDataError",
        }.items()
    },
)
