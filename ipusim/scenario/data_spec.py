"""The part of a scenario that says what data a program learns from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from ipusim.scenario.fields import FileName, Node, Seed, Shape, kind_of


class _Held(Node):
    hold_out: float = Field(0.0, ge=0, lt=1, description="share of the samples that is kept for evaluation")


class SyntheticSpec(_Held, title="synthetic"):
    """Samples drawn around one random centre for each class."""

    type: Literal["synthetic"]
    shape: Shape = Field(description="shape of one sample")
    classes: int = Field(ge=2, le=65_536, description="number of classes")
    samples: int = Field(ge=1, le=10**7, description="number of samples")
    noise: float = Field(0.5, ge=0, le=1e6, description="standard deviation around the centre")
    seed: Seed = Field(0, description="seed of the draws")


class DigitsSpec(_Held, title="digits"):
    """The handwritten digits of scikit-learn: 1797 images of 8x8, 10 classes."""

    type: Literal["digits"]


class IdxSpec(_Held, title="idx"):
    """Images and labels in the file format of MNIST, plain or gzipped."""

    type: Literal["idx"]
    images: FileName = Field(description="file of the images")
    labels: FileName = Field(description="file of the labels")


class NpzSpec(_Held, title="npz"):
    """Samples and labels as two arrays of a NumPy archive."""

    type: Literal["npz"]
    file: FileName = Field(description="the archive")
    x: str = Field("x", description="name of the array of samples")
    y: str = Field("y", description="name of the array of labels")


#: A dataset, told apart by ``type``.
DataSpec = Annotated[
    Annotated[SyntheticSpec, Tag("<synthetic>")]
    | Annotated[DigitsSpec, Tag("<digits>")]
    | Annotated[IdxSpec, Tag("<idx>")]
    | Annotated[NpzSpec, Tag("<npz>")],
    Discriminator(kind_of),
]
