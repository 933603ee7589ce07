"""A gzipped tar archive, written and read piece by piece: neither side ever holds more than one piece of it.

Both are driven from outside and wait for nothing, so that they may run in threads between a socket and a store. Only
plain files are written, and only they are read: a link, a device or data behind the end is no export. Every entry is a
part of one digest, which the last one names: whatever was cut off, changed, moved or put in between is noticed there at
the latest.
"""

import hashlib
import re
import tarfile
import zlib
from dataclasses import dataclass
from typing import Final

LAST: Final = "checksums.json"
"""Name of the last entry; it is no part of the digest that it names."""
_BLOCK: Final = 512
_INFLATED: Final = 256 * 1024
"""Bytes that one step inflates at most: a megabyte of zeros fits into a kilobyte."""
_LONGEST_HEADER: Final = 16 * 1024
"""Of an extended header, which holds a name that is longer than a tar header has room for."""
_LEVEL: Final = 6
_PAX_LINE = re.compile(rb"([0-9]{1,5}) path=(.*)\n\Z", re.DOTALL)


class ArchiveError(ValueError):
    """What was sent is no export, or a damaged one."""


class ArchiveTooLarge(ValueError):
    """More data than is allowed comes out of the archive."""


class Digest:
    """Of names, sizes and contents of all entries so far, in their order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.entries = 0

    def begin(self, name: str, size: int) -> None:
        encoded = name.encode()
        self._hash.update(b"%d %d\n" % (len(encoded), size) + encoded)
        self.entries += 1

    def data(self, data: bytes) -> None:
        self._hash.update(data)

    def hexadecimal(self) -> str:
        return self._hash.hexdigest()


class Writer:
    """`begin`, then `data` of as many bytes as were said, for each entry; `finish` in the end. `take` gives what is
    ready to be sent."""

    def __init__(self) -> None:
        # Without a time of its own, so that the same entries are the same archive.
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
        self._ready: list[bytes] = []
        self._left = 0
        self._size = 0
        self.ready = 0
        """Bytes that `take` gives."""
        self.digest = Digest()

    def begin(self, name: str, size: int, time: int = 0) -> None:
        """`time`: seconds since 1970 that the file shows."""
        assert not self._left, "the entry before is not whole"
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, time, 0o644
        if name != LAST:
            self.digest.begin(name, size)
        self._put(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))
        self._left = self._size = size

    def data(self, data: bytes, *, counted: bool = True) -> None:
        self._left -= len(data)
        assert self._left >= 0, "an entry is longer than was said"
        if counted:
            self.digest.data(data)
        self._put(data)
        if not self._left:
            self._put(bytes(-self._size % _BLOCK))

    def finish(self, content: bytes) -> None:
        """Writes the last entry and the end of the archive."""
        self.begin(LAST, len(content))
        self.data(content, counted=False)
        self._put(bytes(2 * _BLOCK))
        self._keep(self._deflate.flush())

    def take(self) -> bytes:
        taken = b"".join(self._ready)
        self._ready.clear()
        self.ready = 0
        return taken

    def _put(self, data: bytes) -> None:
        self._keep(self._deflate.compress(data))

    def _keep(self, deflated: bytes) -> None:
        if deflated:
            self._ready.append(deflated)
            self.ready += len(deflated)


@dataclass(frozen=True, slots=True)
class Begin:
    """An entry begins."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Data:
    """Some of an entry's content; `last`: it is whole. An entry without content has one that is empty."""

    data: bytes
    last: bool


class Reader:
    """`feed` with what arrives, and `next` until it gives None; `close` when nothing more arrives.

    `most`: bytes that may come out of the archive in all. Raises ArchiveError, ArchiveTooLarge.
    """

    def __init__(self, most: int) -> None:
        self._inflate = zlib.decompressobj(31)
        self._deflated = b""
        self._most = most
        self._inflated = bytearray()
        self._left: int | None = None
        self._padding = 0
        self._ended = False
        self._name: str | None = None
        self._in_last = False
        self.digest = Digest()

    def feed(self, data: bytes) -> None:
        self._deflated += data

    def next(self) -> Begin | Data | None:
        """What comes next; None: feed more."""
        while True:
            found = self._parsed()
            if found is not None:
                return found
            if not self._step():
                return None

    def close(self) -> None:
        """Raises ArchiveError when the archive is not whole."""
        if not self._inflate.eof or not self._ended or self._inflated.strip(b"\0"):
            raise ArchiveError("the archive ends too early")

    def _step(self) -> bool:
        """Inflates some more; whether there was anything."""
        if self._inflate.eof:
            if self._deflated or self._inflate.unused_data:
                raise ArchiveError("something follows the end of the archive")
            return False
        if not self._deflated:
            return False
        try:
            data = self._inflate.decompress(self._deflated, _INFLATED)
        except zlib.error as error:
            raise ArchiveError("the archive is damaged, or not gzipped") from error
        self._deflated = self._inflate.unconsumed_tail
        self._most -= len(data)
        if self._most < 0:
            raise ArchiveTooLarge("the archive holds more than may be imported")
        if self._ended and data.strip(b"\0"):
            raise ArchiveError("something follows the last entry")
        if not self._ended:
            self._inflated += data
        return True

    def _parsed(self) -> Begin | Data | None:
        if self._left is not None:
            return self._content()
        if self._ended or len(self._inflated) < self._padding + _BLOCK:
            return None
        del self._inflated[: self._padding]
        self._padding = 0
        block = bytes(self._inflated[:_BLOCK])
        if not block.strip(b"\0"):
            self._ended = True
            if self._inflated.strip(b"\0"):
                raise ArchiveError("something follows the last entry")
            return None
        return self._header(block)

    def _header(self, block: bytes) -> Begin | None:
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise ArchiveError("the archive is no tar archive") from error
        if info.type == tarfile.XHDTYPE and self._name is None:
            return self._extended(info.size)
        if info.type != tarfile.REGTYPE or info.size < 0:
            raise ArchiveError("the archive holds something that is no plain file")
        del self._inflated[:_BLOCK]
        name, self._name = self._name or info.name, None
        if self._in_last:
            raise ArchiveError("something follows the last entry")
        self._in_last = name == LAST
        if not self._in_last:
            self.digest.begin(name, info.size)
        self._left, self._padding = info.size, -info.size % _BLOCK
        return Begin(name, info.size)

    def _extended(self, size: int) -> Begin | None:
        """Reads the name of the next entry, once all of the extended header is there."""
        if not 0 < size <= _LONGEST_HEADER:
            raise ArchiveError("the archive holds a header that is too long")
        whole = _BLOCK + size + -size % _BLOCK
        if len(self._inflated) < whole:
            return None
        line = bytes(self._inflated[_BLOCK : _BLOCK + size])
        found = _PAX_LINE.fullmatch(line)
        if found is None or int(found[1]) != size:
            raise ArchiveError("the archive holds a header that no export has")
        try:
            self._name = found[2].decode()
        except UnicodeDecodeError as error:
            raise ArchiveError("the archive holds a name that is no text") from error
        del self._inflated[:whole]
        return self._header(bytes(self._inflated[:_BLOCK])) if len(self._inflated) >= _BLOCK else None

    def _content(self) -> Data | None:
        assert self._left is not None
        data = bytes(self._inflated[: self._left])
        if not data and self._left:
            return None
        del self._inflated[: len(data)]
        self._left -= len(data)
        if not self._in_last:
            self.digest.data(data)
        last = self._left == 0
        if last:
            self._left = None
        return Data(data, last)
