"""Live reports of running studies, updated while they are viewed and served to this machine only."""

import mimetypes
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from fedbench.errors import ConfigError
from fedbench.report import make_report
from fedbench.report.template import render

LINKED = {".csv", ".md", ".tex", ".png", ".svg"}
"""Files that pages link to."""
PAUSE_FACTOR = 10
"""A report is updated after at least this many times the seconds it took, to leave time for the runs."""
SHORTEST_PAUSE = 5.0
"""Minimum seconds between updates of a report."""


class LivePage:
    """The report of a folder, written when requested unless it is recent."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        self._due, self._text, self._lock = 0.0, b"", Lock()

    def text(self) -> bytes:
        """The report, or a line that says why there is none yet."""
        with self._lock:
            begun = self._clock()
            if begun >= self._due:
                self._text = self._make_page()
                self._due = self._clock() + max(SHORTEST_PAUSE, PAUSE_FACTOR * (self._clock() - begun))
            return self._text

    def _make_page(self) -> bytes:
        try:
            return make_report(self.folder).read_bytes()
        except ConfigError as error:
            return render("waiting.html.j2", line=str(error)).encode()

    def version(self) -> bytes:
        """Sixteen hexadecimal digits that change with the report."""
        return sha256(self.text()).hexdigest()[:16].encode()

    def linked_file(self, name: str) -> bytes | None:
        """A file that reports link to; None for any other, also behind a link that leads out of the folder."""
        path = self.folder / name
        if path.parent != self.folder or path.suffix not in LINKED:
            return None
        try:
            inside = path.resolve().is_relative_to(self.folder.resolve())
            return path.read_bytes() if inside and path.is_file() else None
        except OSError:  # unreadable, or a name that no file can have
            return None


class Handler(BaseHTTPRequestHandler):
    """Serves the frame, the report in it, the report's version, and files next to it."""

    def __init__(self, page: LivePage, *arguments: object) -> None:
        self.page = page
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].removeprefix("/")
        if name == "":
            self._answer(render("live.html.j2", title=self.page.folder.name).encode())
        elif name == "page":
            self._answer(self.page.text())
        elif name == "version":
            self._answer(self.page.version(), "text/plain")
        elif (content := self.page.linked_file(name)) is not None:
            self._answer(content, mimetypes.guess_type(name)[0] or "application/octet-stream")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, content: bytes, kind: str = "text/html") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        """Logs nothing, to keep the terminal clean."""


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Serves a folder's report on the loopback address. port 0: any free port. Raises ConfigError."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, LivePage(folder)))
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot be used ({error.strerror}); omit it to use a free port") from None
