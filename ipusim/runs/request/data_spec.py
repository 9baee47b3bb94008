"""Define the keys of a scenario's data section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from ipusim.runs.request.fields import Axis, FileName, Node, Seed, Shape, kind_of


class _DatasetSpec(Node):
    hold_out: float | None = Field(
        default=None,
        gt=0,
        le=10**7,
        description="samples held out for evaluation: a share below 1, or a number; default: none",
    )
    shuffle: bool = Field(default=True, description="whether each epoch takes the samples in a new order")


class SyntheticSpec(_DatasetSpec, title="synthetic"):
    """Classification for a network with a hidden layer: each class is a pair of opposite points with noise."""

    type: Literal["synthetic"]
    shape: Shape = Field(description="shape of one sample")
    classes: int = Field(ge=2, le=10_000, description="number of classes")
    samples: int = Field(ge=1, le=10**7, description="number of samples")
    noise: float = Field(default=0.25, ge=0, le=1000, description="length of the noise as a share of a point's length")
    label_count: Axis | None = Field(
        default=None,
        description="number of labels of a sample, such as the words of an utterance: its class and the classes after "
        "it; default: only its class",
    )
    seed: Seed = Field(default=0, description="seed of the samples")


class SyntheticTargetsSpec(_DatasetSpec, title="synthetic_targets"):
    """Regression: Gaussian points, with tanh of a random linear map as targets."""

    type: Literal["synthetic_targets"]
    shape: Shape = Field(description="shape of one sample")
    target_shape: Shape = Field(description="shape of one target")
    samples: int = Field(ge=1, le=10**7, description="number of samples")
    noise: float = Field(default=0.0, ge=0, le=1000, description="standard deviation of the noise on the targets")
    seed: Seed = Field(default=0, description="seed of the samples")


class SyntheticTokensSpec(_DatasetSpec, title="synthetic_tokens"):
    """Language: each token depends on the two previous tokens, and is the label of the previous token."""

    type: Literal["synthetic_tokens"]
    length: Axis = Field(description="tokens of one sample")
    vocabulary: int = Field(ge=2, le=65_536, description="number of different tokens")
    samples: int = Field(ge=1, le=10**7, description="number of samples")
    noise: float = Field(default=0.1, ge=0, le=1, description="share of tokens that are drawn at random")
    seed: Seed = Field(default=0, description="seed of the samples")


class DigitsSpec(_DatasetSpec, title="digits"):
    """The 1797 handwritten digits of 8 x 8 pixels that scikit-learn ships (an extra: ipusim[digits])."""

    type: Literal["digits"]


class IdxSpec(_DatasetSpec, title="idx"):
    """Images and labels in the file format of MNIST, plain or gzipped."""

    type: Literal["idx"]
    images: FileName = Field(description="file of the images")
    labels: FileName = Field(description="file of the labels")


class NpzSpec(_DatasetSpec, title="npz"):
    """Samples and labels as two arrays of a NumPy archive."""

    type: Literal["npz"]
    file: FileName = Field(description="the archive")
    x: str = Field(default="x", max_length=256, description="name of the array of samples")
    y: str = Field(default="y", max_length=256, description="name of the array of labels or targets")
    tokens: bool = Field(default=False, description="whether the samples are whole numbers for an embedding")


#: Dataset, discriminated by ``type``.
DataSpec = Annotated[
    Annotated[SyntheticSpec, Tag("<synthetic>")]
    | Annotated[SyntheticTargetsSpec, Tag("<synthetic_targets>")]
    | Annotated[SyntheticTokensSpec, Tag("<synthetic_tokens>")]
    | Annotated[DigitsSpec, Tag("<digits>")]
    | Annotated[IdxSpec, Tag("<idx>")]
    | Annotated[NpzSpec, Tag("<npz>")],
    Discriminator(kind_of),
]
