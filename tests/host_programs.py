"""Programs that tests run on several hosts, and what each host's ``program`` returns."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

from ipusim.ipu.programs.program_file import ProgramFile

HEAD = """
import pickle
import numpy as np
import horovod.tensorflow as hvd
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from tensorflow.python.ipu.horovod.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
"""
KEPT = """
with open(__file__.replace("program.py", f"{hvd.rank()}.pickle"), "wb") as file:
    pickle.dump(program(), file)
"""


def on_hosts(text, count, *, version=1):
    """Run a program that defines ``program()`` on so many hosts, in a folder of its own; return its results by rank."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(HEAD + text + KEPT)
        ProgramFile(path).run(hosts=count, tensorflow=version)
        return [pickle.loads(Path(folder, f"{rank}.pickle").read_bytes()) for rank in range(count)]
