"""Convert a request's data section to datasets in memory.

A timing-only run needs only outlines of synthetic data: shapes and types without values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.base.files import open_file
from ipusim.model.data import dataset_files
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.outlined import outlined_classes, outlined_targets, outlined_tokens
from ipusim.model.data.synthetic import synthetic_classes, synthetic_targets, synthetic_tokens
from ipusim.runs.assemble.limits import MAX_DIRECTION_ELEMENTS, MAX_SAMPLE_ELEMENTS
from ipusim.runs.findings import Findings
from ipusim.runs.request.data_spec import (
    DataSpec,
    IdxSpec,
    NpzSpec,
    SyntheticSpec,
    SyntheticTargetsSpec,
    SyntheticTokensSpec,
)
from ipusim.runs.request.schema import Options

_Synthetic = SyntheticSpec | SyntheticTargetsSpec | SyntheticTokensSpec


@dataclass(frozen=True, eq=False)
class Data:
    """Training data of a program, and held-out data for evaluation (None without evaluation)."""

    train: Dataset
    held_out: Dataset | None


def resolve_data(options: Options, base: Path, findings: Findings) -> Data | None:
    """Return the datasets in the request's precision.

    Without arithmetic, synthetic samples are not generated; files are still read and checked.

    Args:
        options: options of the request.
        base: folder that file names are relative to.
        findings: recorder of problems.

    Returns:
        Datasets; None for a request without data, or after recording a problem.
    """
    spec = options.data
    if spec is None:
        return None
    dtype = np.dtype(options.precision)
    if options.numerics == "off" and isinstance(spec, _Synthetic):
        train = _outlined(spec, dtype, findings)
    else:
        train = _dataset(spec, base, dtype, findings)
    if train is None:
        return None
    train = train.astype(dtype)
    held_out = None
    if spec.hold_out is not None:
        parts = findings.attempt(("data", "hold_out"), train.split, spec.hold_out, options.seed)
        if parts is None:
            return None
        train, held_out = parts
    size = options.pipeline.micro_batch_size
    if size > len(train):
        note = " that are not held out" if held_out is not None else ""
        text = f"expected a micro-batch of at most the {len(train)} samples of the data{note}, got {size}"
        findings.add(("pipeline", "micro_batch_size"), f"{text}: make it smaller, or take more samples")
        return None
    return Data(train, held_out)


def _dataset(spec: DataSpec, base: Path, dtype: np.dtype[Any], findings: Findings) -> Dataset | None:
    """Return the samples that ``spec`` describes, in ``dtype``; None after recording a problem."""
    match spec:
        case SyntheticSpec() | SyntheticTargetsSpec() | SyntheticTokensSpec():
            return _synthetic(spec, findings)
        case IdxSpec():
            paths = {key: base / str(getattr(spec, key)) for key in ("images", "labels")}
            readable = [_is_readable(path, key, findings) for key, path in paths.items()]
            try:
                return dataset_files.idx(paths["images"], paths["labels"], dtype) if all(readable) else None
            except ModelError as error:
                about_labels = str(error).startswith(f"{paths['labels']}:")
                findings.add(("data", "labels" if about_labels else "images"), str(error))
        case NpzSpec():
            if _is_readable(base / spec.file, "file", findings):
                path = base / spec.file
                return findings.attempt(("data", "file"), dataset_files.npz, path, spec.x, spec.y, spec.tokens, dtype)
        case _:
            return findings.attempt(("data", "type"), dataset_files.digits, dtype)
    return None


def _is_readable(path: Path, key: str, findings: Findings) -> bool:
    try:
        open_file(path).close()
    except OSError as error:
        findings.add(("data", key), f"expected a file that can be read, got {path}: {error.strerror}")
        return False
    return True


def _fits(samples: int, elements: int, findings: Findings) -> bool:
    """Return whether the numbers of all samples fit in memory; otherwise record a problem."""
    if samples * elements > MAX_SAMPLE_ELEMENTS:
        text = (
            f"expected at most {MAX_SAMPLE_ELEMENTS} numbers in all, got {samples} samples of {elements}: use "
            "fewer samples"
        )
        findings.add(("data", "samples"), text)
    return samples * elements <= MAX_SAMPLE_ELEMENTS


def _synthetic(spec: _Synthetic, findings: Findings) -> Dataset | None:
    draw_options = spec.samples, spec.noise, spec.seed
    if isinstance(spec, SyntheticTokensSpec):
        fits = _fits(spec.samples, 2 * spec.length, findings)
        return (
            findings.attempt(("data",), synthetic_tokens, spec.length, spec.vocabulary, *draw_options) if fits else None
        )
    size = math.prod(spec.shape)
    if isinstance(spec, SyntheticSpec):
        outputs, label_elements = min(size, spec.classes), spec.label_count or 0
        if not _enough_samples(spec, findings):
            return None
    else:
        outputs, label_elements = math.prod(spec.target_shape), 0
    if not _fits(spec.samples, size + outputs + label_elements, findings):
        return None
    if size * outputs > MAX_DIRECTION_ELEMENTS:
        text = (
            f"expected at most {MAX_DIRECTION_ELEMENTS} as inputs x outputs, got {size} x {outputs}: use smaller sizes"
        )
        findings.add(("data", "shape"), text)
        return None
    if isinstance(spec, SyntheticSpec):
        return findings.attempt(("data",), synthetic_classes, spec.shape, spec.classes, *draw_options, spec.label_count)
    return findings.attempt(("data",), synthetic_targets, spec.shape, spec.target_shape, *draw_options)


def _enough_samples(spec: SyntheticSpec, findings: Findings) -> bool:
    """Return whether there is a sample for each class; otherwise record a problem."""
    if spec.samples < spec.classes:
        text = f"expected at least one sample for each of {spec.classes} classes, got {spec.samples}"
        findings.add(("data", "samples"), text)
    return spec.samples >= spec.classes


def _outlined(spec: _Synthetic, dtype: np.dtype[Any], findings: Findings) -> Dataset | None:
    """Return outlines of the synthetic samples in ``dtype``, for any number; None after recording a problem."""
    problem_count = len(findings)
    for key in ("shape", "target_shape"):
        size = math.prod(getattr(spec, key, ()))
        if size > MAX_SAMPLE_ELEMENTS:
            findings.add(("data", key), f"expected at most {MAX_SAMPLE_ELEMENTS} numbers in a sample, got {size}")
    if isinstance(spec, SyntheticSpec):
        _enough_samples(spec, findings)
    if len(findings) > problem_count:
        return None
    match spec:
        case SyntheticSpec():
            return outlined_classes(spec.shape, spec.classes, spec.samples, dtype, spec.label_count)
        case SyntheticTargetsSpec():
            return outlined_targets(spec.shape, spec.target_shape, spec.samples, dtype)
    return outlined_tokens(spec.length, spec.vocabulary, spec.samples)
