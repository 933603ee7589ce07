"""A double of an S3 server, on a socket: as much of S3's protocol as an object store's client speaks for blobs.

It knows PutObject, GetObject, HeadObject, DeleteObjects and ListObjectsV2 in pages, and holds one bucket's objects in
memory. It checks no signature, keeps no versions, and does nothing of multipart uploads. Unlike S3 it takes the time of
an object from whoever runs it, and does what `faults` say.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from enum import Enum
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "blobs"


class Fault(Enum):
    """What becomes of one request instead of its answer."""

    BUSY = "503 SlowDown, and nothing is done"
    HANG = "it is read and never answered"
    CUT = "the connection ends in the middle of the answer's body"
    DONE_UNTOLD = "it is done, and the connection ends before the answer"
    DENIED = "403 AccessDenied"


class S3Double:
    """`objects`: key to (data, seconds since 1970 when it was stored). `faults` answer the first requests, one each;
    then `outage`, if set, answers every request. `asked`: method and path of every request, in order."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.faults: deque[Fault] = deque()
        self.outage: Fault | None = None
        self.asked: list[str] = []
        self.hung = threading.Event()
        self.over = threading.Event()
        self.lock = threading.Lock()
        double = self

        class Handler(_Handler):
            server_double = double

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def age(self, seconds: float) -> None:
        """As if all objects had been put so much earlier."""
        with self.lock:
            self.objects = {key: (data, at - seconds) for key, (data, at) in self.objects.items()}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def running(page: int = 3) -> Iterator[S3Double]:
    """`page`: objects in one page of a list."""
    double = S3Double(page)
    double.start()
    try:
        yield double
    finally:
        double.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_double: S3Double

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        double = self.server_double
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with double.lock:
            double.asked.append(f"{self.command} {self.path}")
            fault = double.faults.popleft() if double.faults else double.outage
        match fault:
            case Fault.BUSY:
                return self._error(503, "SlowDown")
            case Fault.DENIED:
                return self._error(403, "AccessDenied")
            case Fault.HANG:
                double.hung.set()
                double.over.wait()
                self.close_connection = True
                return
        status, headers, answer = self._do(body)
        if fault is Fault.DONE_UNTOLD:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", headers.get("Content-Length", str(len(answer))))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is Fault.CUT:
            answer = answer[: len(answer) // 2]
            self.close_connection = True
        self.wfile.write(answer)

    def _do(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        place = urlsplit(self.path)
        bucket, _, key = unquote(place.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(place.query, keep_blank_values=True).items()}
        with self.server_double.lock:
            objects = self.server_double.objects
            match self.command:
                case _ if bucket != BUCKET:
                    return 404, {}, _xml("Error", "<Code>NoSuchBucket</Code>")
                case "PUT" if key:
                    objects[key] = (body, time.time())
                    return 200, {"ETag": _etag(body)}, b""
                case "GET" | "HEAD" if key:
                    if key not in objects:
                        return 404, {}, _xml("Error", "<Code>NoSuchKey</Code>")
                    data, at = objects[key]
                    return 200, {"ETag": _etag(data), "Last-Modified": formatdate(at, usegmt=True)}, data
                case "GET" if query.get("list-type") == "2":
                    return 200, {}, self._listed(objects, query)
                case "POST" if "delete" in query:
                    keys = [one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.endswith("Key")]
                    for one in keys:
                        objects.pop(one, None)
                    gone = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in keys)
                    return 200, {}, _xml("DeleteResult", gone)
        return 501, {}, _xml("Error", "<Code>NotImplemented</Code>")

    def _listed(self, objects: dict[str, tuple[bytes, float]], query: dict[str, str]) -> bytes:
        """One page, behind the key that the token of the page before names."""
        after = query.get("continuation-token", "")
        keys = sorted(key for key in objects if key.startswith(query.get("prefix", "")) and key > after)
        shown = keys[: self.server_double.page]
        more = len(keys) > len(shown)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(objects[key][1])}</LastModified>"
            f"<ETag>{escape(_etag(objects[key][0]))}</ETag><Size>{len(objects[key][0])}</Size></Contents>"
            for key in shown
        )
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        return _xml(
            "ListBucketResult",
            f"<Name>{BUCKET}</Name><KeyCount>{len(shown)}</KeyCount><MaxKeys>{self.server_double.page}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}",
        )

    def _error(self, status: int, code: str) -> None:
        body = _xml("Error", f"<Code>{code}</Code>")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what went wrong."""


def _etag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".000Z"


def _xml(tag: str, body: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{tag}>{body}</{tag}>'.encode()
