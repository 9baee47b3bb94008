"""The part of a request that says how weights are updated, once for each execution: of the table of optimizers."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Discriminator, Tag

from ipusim.model.learning.table import rows
from ipusim.runs.request.derived import RowSpec, spec_of
from ipusim.runs.request.fields import kind_of

if TYPE_CHECKING:
    OptimizerSpec = RowSpec
else:
    #: The weight update, once for each execution of the pipeline.
    OptimizerSpec = Annotated[
        reduce(or_, (Annotated[spec_of(row, RowSpec), Tag(f"<{row.kind}>")] for row in rows())), Discriminator(kind_of)
    ]
