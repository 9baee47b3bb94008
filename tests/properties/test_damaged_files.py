"""Damaged data files and timelines: every outcome is a value or one error of ours, in bounded memory."""

import gzip
import io
import json
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.app.run_folder.pictures import picture
from ipusim.app.run_folder.report import picture_window
from ipusim.base.errors import IpusimError, ModelError, TimelineError
from ipusim.model.data.dataset_files import idx, npz, read_idx
from ipusim.timeline.timeline import Span, Timeline
from tests.effort import share
from tests.random_runs import any_text
from tests.timelines import timeline_by_hand

FLIPS = share(400)
#: What zlib, zipfile and NumPy's parser may take for a file of a few hundred bytes, whatever that says of itself.
BOUND_BYTES = 2_000_000


def saved(save, **arrays):
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def refusal(error, action, *arguments):
    """Return the message of that error, or nothing for a value; every other exception goes on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            action(*arguments)
    except error as refused:
        return str(refused)
    return ""


X, Y = np.arange(12, dtype=np.uint8).reshape(4, 3), np.array([0, 1, 2, 1], np.uint8)
IMAGES = b"\0\0\x08\x02\0\0\0\x04\0\0\0\x03" + X.tobytes()
FILES = {
    "npz": (saved(np.savez, x=X, y=Y), npz),
    "npz, compressed": (saved(np.savez_compressed, x=X, y=Y), npz),
    "npy": (saved(partial(np.save, arr=X)), npz),
    "idx": (IMAGES, read_idx),
    "gzip": (gzip.compress(IMAGES, mtime=0), read_idx),
    "timeline": (saved(timeline_by_hand(count=4).save), Timeline.load),
    "labels": (b"\0\0\x08\x01\0\0\0\x04" + Y.tobytes(), lambda path: idx(path, path)),
}


def damage(content, seed):
    """Return the bytes with some flipped, cut off, doubled or put in."""
    random = np.random.default_rng(seed)
    data = bytearray(content)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(len(data)))
        match random.integers(6):
            case 0:
                del data[at + 1 :]
            case 1:
                data[at:at] = data[at : at + 16]
            case 2:
                data[at : at + 8] = b"\xff" * 8
            case _:
                data[at] ^= 1 << int(random.integers(8))
    return bytes(data)


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_data_file_is_a_value_or_one_message(tmp_path, kind):
    content, read = FILES[kind]
    path = tmp_path / "f"
    refused = 0
    tracemalloc.start()
    for seed in range(FLIPS):
        path.write_bytes(damage(content, seed))
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        message = refusal((ModelError, TimelineError), read, path)
        refused += bool(message)
        assert not message or str(path) in message, seed
        assert "\n" not in message, seed
        assert "pickle" not in message, seed
        assert tracemalloc.get_traced_memory()[1] - before < BOUND_BYTES, seed
    tracemalloc.stop()
    assert refused > FLIPS / 3


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2, 2**31, 2**53, 2**62, 2**63]),
    st.floats(),
    any_text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 3), any_text(max_size=4)), max_size=4),
    st.dictionaries(any_text(max_size=3), st.integers(), max_size=2),
)


@given(st.data())
def test_a_timeline_of_any_content_is_a_picture_or_one_message(lock_step, data):
    buffer = io.BytesIO()
    timeline = lock_step(count=4, executions=2, infeed=5, outfeed=3)
    timeline.save(buffer)
    buffer.seek(0)
    with np.load(buffer) as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    info = json.loads(arrays["info"].tobytes())
    for _ in range(data.draw(st.integers(0, 2))):
        info[data.draw(st.sampled_from(sorted(info)))] = data.draw(VALUES)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(Span._fields))
        at, value = data.draw(st.integers(0, len(timeline) - 1)), data.draw(st.integers(-3, 2**63 - 1))
        arrays[name][at:] = value
    if data.draw(st.integers(0, 9)) == 0:
        name = data.draw(st.sampled_from(Span._fields))
        change = data.draw(st.sampled_from([lambda a: a[:-1], lambda a: a.astype(float), lambda a: a[None]]))
        arrays[name] = change(arrays[name])
    arrays["info"] = np.frombuffer(json.dumps(info).encode(), np.uint8)
    changed = io.BytesIO(saved(np.savez, **arrays))

    def draw():
        loaded = Timeline.load(changed)
        assert picture(loaded, picture_window(loaded), ".png").startswith(b"\x89PNG")

    assert "\n" not in refusal(IpusimError, draw)
