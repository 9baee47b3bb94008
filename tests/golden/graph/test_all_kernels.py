"""Kernels against eager TensorFlow: every operation type with a kernel has a case, and each case its values."""

from importlib import import_module, util

import pytest

from ipusim.ipu.graph import kernels
from ipusim.ipu.graph.registry import registered
from tests.golden.graph.eager import check

#: Operations of the host, which a kernel hands to TensorFlow or Python: ``tests/oracles/test_traced_functions.py`` and
#: ``tests/unit/ipu/test_outside.py`` have them.
OF_THE_HOST = {"IteratorGetNext", "PyFunc", "PyFuncStateless", "EagerPyFunc"}


def _module_of(family):
    """Return the module with a family's cases, which has tests of its own where TensorFlow must be asked otherwise."""
    name = f"tests.golden.graph.{family}"
    return import_module(name if util.find_spec(name) else f"tests.golden.graph.test_{family}")


MODULES = [_module_of(family) for family in kernels.FAMILIES]
CASES = [case for module in MODULES for case in getattr(module, "CASES", ())]


def test_every_registered_operation_has_a_case():
    tested = OF_THE_HOST | {case.type for case in CASES}
    for module in MODULES:
        tested |= set(getattr(module, "IN_GRAPHS", ()))
    assert sorted(set(registered()) - tested) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_gives_tensorflows_values(case):
    check(case)
