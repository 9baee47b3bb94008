"""Every operation type with a kernel has a case that holds it against TensorFlow."""

from __future__ import annotations

from importlib import import_module

from ipusim.ipu.graph import kernels
from ipusim.ipu.graph.registry import registered

#: Operations of the host, which a kernel hands to TensorFlow or Python: ``tests/oracles/test_traced_functions.py`` and
#: ``tests/unit/ipu/test_outside.py`` have them.
OF_THE_HOST = {"IteratorGetNext", "PyFunc", "PyFuncStateless", "EagerPyFunc"}


def test_every_registered_operation_has_a_case():
    tested = set(OF_THE_HOST)
    for family in kernels.FAMILIES:
        module = import_module(f"tests.golden.graph.test_{family}")
        tested |= {case.type for case in getattr(module, "CASES", ())} | set(getattr(module, "IN_GRAPHS", ()))
    assert sorted(set(registered()) - tested) == []
