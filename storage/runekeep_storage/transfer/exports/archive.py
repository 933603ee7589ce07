"""A gzipped tar archive, written and read piece by piece: neither side ever holds more than one piece of it.

Both are driven by their caller and never wait, so they can run in threads between a socket and a store. Only plain
files are written and read: an archive with a link, a device or data after its end is refused. Every entry goes into one
digest, which the last entry contains: anything cut off, changed, moved or inserted is noticed there at the latest.
"""

import hashlib
import re
import tarfile
import zlib
from dataclasses import dataclass
from typing import Final

LAST: Final = "checksums.json"
"""Name of the last entry. The digest that it contains does not cover it."""
_BLOCK: Final = 512
_INFLATED: Final = 256 * 1024
"""Maximum number of bytes that one step inflates: a megabyte of zeros fits into a kilobyte."""
_MAX_HEADER: Final = 16 * 1024
"""Maximum size in bytes of an extended header, which holds a name too long for a tar header."""
_LEVEL: Final = 6
_PAX_LINE = re.compile(rb"([0-9]{1,5}) path=(.*)\n\Z", re.DOTALL)


class ArchiveError(ValueError):
    """The data is no export, or a damaged one."""


class ArchiveTooLarge(ValueError):
    """The archive contains more data than is allowed."""


class Digest:
    """Digest over the names, sizes and contents of all entries so far, in their order."""

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
    """Writes an archive: for each entry `begin`, then `data` of exactly the announced size; `finish` at the end. `take`
    returns what is ready to be sent."""

    def __init__(self) -> None:
        # Without a timestamp, so that the same entries give the same archive.
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
        self._ready: list[bytes] = []
        self._left = 0
        self._size = 0
        self.ready = 0
        """Number of bytes that `take` returns."""
        self.digest = Digest()

    def begin(self, name: str, size: int, time: int = 0) -> None:
        """Begins an entry. `time`: modification time of the file in seconds since 1970."""
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
    """A part of an entry's content; `last`: the entry is complete. An entry without content has one empty part."""

    data: bytes
    last: bool


class Reader:
    """Reads an archive: `feed` it with the data that arrives and call `next` until it returns None; `close` when no
    more arrives.

    `most`: maximum number of bytes that may come out of the archive. Raises ArchiveError, ArchiveTooLarge.
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
        """Returns the next item; None if more data must be fed."""
        while True:
            found = self._parsed()
            if found is not None:
                return found
            if not self._step():
                return None

    def close(self) -> None:
        """Raises ArchiveError if the archive is not complete."""
        if not self._inflate.eof or not self._ended or self._inflated.strip(b"\0"):
            raise ArchiveError("the archive ends too early")

    def _step(self) -> bool:
        """Inflates some more data. Returns whether there was any."""
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
        """Reads the name of the next entry once the extended header is complete."""
        if not 0 < size <= _MAX_HEADER:
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
