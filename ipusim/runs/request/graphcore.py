"""Annotate schema fields with their counterparts in Graphcore's API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphcoreName:
    """Annotation of a key that also exists in Graphcore's TensorFlow; base of the annotations below.

    Attributes:
        effect: effect in ipusim beyond the key's description, for users of Graphcore's API.
        name: Graphcore's name; empty if it equals the key, with its path within the section.
    """

    effect: str = ""
    name: str = ""


class Argument(GraphcoreName):
    """Annotation of a key for an argument of ``pipelining_ops.pipeline``."""


class Attribute(GraphcoreName):
    """Annotation of a key for an attribute of ``IPUConfig``."""
