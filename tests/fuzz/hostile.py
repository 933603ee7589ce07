"""What is done to requests so that they keep to nothing: other bytes, other metadata."""

import random
from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor

Metadata = tuple[tuple[str, str | bytes], ...]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _nested(field: int, depth: int) -> bytes:
    """A message in itself, so often."""
    inner = b""
    for _ in range(depth):
        inner = _tag(field, 2) + _varint(len(inner)) + inner
    return inner


def garbled(rng: random.Random, sound: bytes, descriptor: Descriptor) -> bytes:
    """A request that is damaged as bytes. Some are still of the contract's form."""
    numbers: Sequence[int] = [field.number for field in descriptor.fields] or [1]
    field = rng.choice(numbers)
    match rng.randrange(15):
        case 0:
            return rng.randbytes(rng.choice((1, 2, 7, 100, 5000)))
        case 1:
            return sound[: rng.randrange(len(sound) + 1)]
        case 2:
            at = rng.randrange(len(sound) + 1)
            return sound[:at] + rng.randbytes(rng.choice((1, 4))) + sound[at + 1 :]
        case 3:
            # The type on the wire is not the field's.
            return sound + _tag(field, rng.choice((0, 1, 2, 3, 4, 5, 6, 7))) + rng.randbytes(8)
        case 4:
            # Longer than the message is.
            return sound + _tag(field, 2) + _varint(rng.choice((1000, 2**31 - 1, 2**32, 2**63)))
        case 5:
            return sound + _tag(field, 2) + _varint(3) + b"\xff\xfe\xc0"
        case 6:
            return sound + _nested(field, rng.choice((10, 99, 101, 5000)))
        case 7:
            # Each field twice: the last one of two counts, lists grow.
            return sound + sound
        case 8:
            # Fields that nobody knows.
            return sound + _tag(rng.choice((536_870_911, 19_000, 999)), 2) + _varint(5) + b"hello"
        case 9:
            return sound + _tag(field, 0) + b"\xff" * 10 + b"\x01"
        case 10:
            # Groups, which proto3 has not.
            return sound + _tag(field, 3) * rng.choice((1, 50, 200))
        case 11:
            # Wide: many empty messages, texts or lists of numbers.
            return sound + (_tag(field, 2) + b"\0") * rng.choice((10_000, 300_000))
        case 12:
            # Repeated: the same request again and again, up to a megabyte.
            return sound * (1 + rng.choice((10**5, 10**6)) // max(len(sound), 1))
        case 13:
            # Deep. A list of small numbers makes the request large enough to be scanned before it is parsed.
            return _nested(field, 150) + _tag(field, 2) + _varint(200_000) + b"\1" * 200_000
        case _:
            return sound[::-1]


_TRACES = (
    "",
    "00-" + "0" * 32 + "-" + "0" * 16 + "-00",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    "x" * 2000,
    "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
)
_IDS = (
    "", " ", "..", "a/b", "default", "x" * 129, "memories", "%2e%2e", "\x7e" * 10, "a" * 4000, "-a", "A.b_c-1", "null"
)  # fmt: skip
_KEYS = (
    "", "Bearer", "Bearer ", "bearer x", "Bearer rk_", "Bearer rk__", "Basic YTpi", "Bearer " + "x" * 5000,
    "Bearer rk_aaaaaaaaaaaaaaaa_" + "A" * 43, "Bearer rk_aaaaaaaaaaaaaaaa_" + "A" * 42,
    "rk_aaaaaaaaaaaaaaaa_" + "A" * 43,
)  # fmt: skip
_NAMES = ("x-runekeep-account", "x-runekeep-user", "x-runekeep-scope", "authorization", "traceparent", "x-other")


def with_hostile_metadata(rng: random.Random, sound: Metadata) -> Metadata:
    """The caller's own metadata, with something beside it or in its place."""
    match rng.randrange(8):
        case 0:
            return (*sound, *sound)
        case 1:
            return (*sound, (rng.choice(_NAMES), rng.choice(_IDS)))
        case 2:
            return tuple((key, rng.choice(_IDS) if rng.random() < 0.5 else value) for key, value in sound)
        case 3:
            return (*sound, ("traceparent", rng.choice(_TRACES)))
        case 4:
            return (*sound, ("authorization", rng.choice(_KEYS)))
        case 5:
            return (*sound, (rng.choice(_NAMES) + "-bin", rng.randbytes(rng.choice((0, 1, 300)))))
        case 6:
            return (*sound, *((f"x-many-{number}", "v" * 30) for number in range(rng.choice((20, 60)))))
        case _:
            return ()
