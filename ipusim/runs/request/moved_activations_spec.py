"""Define the keys of a scenario for activations that are moved off their IPU."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field, Strict, Tag

from ipusim.pipeline.offload import Destination
from ipusim.runs.request.fields import MAX_STAGES, Choice, Name, Node


class MovedActivationsSpec(Node, title="moved activations"):
    """Activations moved off their IPU after forward passes, and back before the passes that use them."""

    to: Annotated[Literal["streaming_memory", "partner"], Choice(get_args(Destination))] = Field(
        default="streaming_memory",
        description="destination: the Streaming Memory of their IPU, or a partner IPU at the same distance from the "
        "opposite end of the pipeline, as in BPipe",
    )
    stages: Annotated[tuple[Name, ...], Strict(False)] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_STAGES,
        description="names of the stages whose activations are moved; default: all",
    )
    keep: int | None = Field(
        default=None,
        ge=0,
        le=10**6,
        description="maximum number of a stage's micro-batches that stay on its IPU; default: 1, or with partner the "
        "number that limits each of p IPUs to half of p + 2 micro-batches, rounded up, under 1f1b",
    )
    buffers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="maximum number of a stage's micro-batches in use or in transit at a time, in addition to keep; "
        "with more than one buffer and sync: point_to_point, moves overlap the passes of other moved micro-batches",
    )


def _moved_kind(value: object) -> str:
    return "<moved activations>" if isinstance(value, dict | Node) else "<true or false>"


#: Value of ``pipeline.offload_activations``.
OffloadedActivations = Annotated[
    Annotated[bool, Field(title="true or false"), Tag("<true or false>")]
    | Annotated[MovedActivationsSpec, Tag("<moved activations>")],
    Discriminator(_moved_kind),
]
