"""What a key of a scenario is in Graphcore's API: annotations of the schema's fields, of which the rest is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphcoreName:
    """Annotation of a key that Graphcore's TensorFlow has as well; see the kinds below.

    Attributes:
        effect: what it does here, where that is more than the key's description says; one for Graphcore's own users.
        name: Graphcore's; empty where it is the key's own, below the key of its section.
    """

    effect: str = ""
    name: str = ""


class Argument(GraphcoreName):
    """Annotation of a key that is an argument of ``pipelining_ops.pipeline``."""


class Attribute(GraphcoreName):
    """Annotation of a key that is an attribute of ``IPUConfig``."""
