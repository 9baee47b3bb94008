"""Files with contents that no honest program writes: headers that say anything, archives that lie."""

import io
import struct
import zipfile
import zlib


def header(shape, dtype="<f8"):
    """Return the header of a NumPy array, which may say anything."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


#: A whole array of two numbers.
DATA = header((2,)) + bytes(16)


def archive(compression=zipfile.ZIP_DEFLATED, **members):
    """Return an npz archive of members with any content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def patched(content, offset_in_local, offset_in_directory, change):
    """Return an archive with a field of its only member changed in both places that have it."""
    data = bytearray(content)
    for start, offset in ((b"PK\x03\x04", offset_in_local), (b"PK\x01\x02", offset_in_directory)):
        change(data, data.index(start) + offset)
    return bytes(data)


def bomb(size, *names):
    """Return an archive of arrays of those names, of which the first unpacks to so many bytes of zeros.

    A stretch of them packs to the same bytes again and again, so that there is nothing to wait for.
    """
    stretch = 1 << 24
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = packer.compress(bytes(stretch)) + packer.flush(zlib.Z_FULL_FLUSH)
    start = header((size // 8,), "<i8")
    packed = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH) + zeros * (size // stretch) + packer.flush()
    content = archive(zipfile.ZIP_STORED, **{names[0]: packed}, **dict.fromkeys(names[1:], DATA))

    def unpacks(data, at):
        data[at : at + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)

    def states(data, at):
        data[at : at + 4] = struct.pack("<I", len(start) + size)

    return patched(patched(content, 8, 10, unpacks), 22, 24, states)


def idx_bytes(shape, content=b""):
    """Return an idx file of bytes, whose header may say any shape."""
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + content
