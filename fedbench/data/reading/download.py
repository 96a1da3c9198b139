"""Published files over HTTP, each checked against its published MD5 sum; by pooch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from fedbench.errors import first_line
from fedbench.silence import silence_logger

HTTP_TIMEOUT = 20.0
"""Seconds without an answer after which a download is given up."""
CHUNK_BYTES = 2**20
HEADERS = {"User-Agent": "fedbench", "Accept-Encoding": "identity"}
"""No encoding, or what is already packed would be unpacked on the way and have another checksum."""

OnBytes = Callable[[int, int], None]
"""Called with the bytes that have come, and how many there are."""


@dataclass(frozen=True)
class Download:
    """A published file. addresses: tried in this order; the first one ends with the name of the file."""

    addresses: tuple[str, ...]
    md5: str

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.addresses[0]).path).name


def fetch(wanted: Download, folder: Path, progress: OnBytes | None = None) -> None:
    """One file, from the first address that gives it with the published checksum. Raises OSError or ValueError."""
    import pooch  # here, because a process that downloads nothing does without it

    bar = ByteCount(progress) if progress else False
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK_BYTES, timeout=HTTP_TIMEOUT, headers=HEADERS)
    for number, address in enumerate(wanted.addresses, 1):
        try:
            with silence_logger("pooch"):
                pooch.retrieve(address, f"md5:{wanted.md5}", wanted.name, folder, downloader=downloader)
            return
        except (OSError, ValueError):
            if number == len(wanted.addresses):
                raise


class ByteCount:
    """A progress bar as pooch drives it, which counts whole chunks and says the total at the end."""

    def __init__(self, progress: OnBytes) -> None:
        self.total, self._done, self._progress = 0, 0, progress

    def update(self, size: int) -> None:
        self._done += size
        self._progress(min(self._done, self.total) if self.total else self._done, max(self._done, self.total))

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def failure_reason(error: BaseException) -> str:
    """Why a download failed: the system's own words, which requests wraps several times."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return "no answer" if isinstance(error, TimeoutError) else first_line(error).rstrip(":")


def file_md5(path: Path) -> str:
    import pooch

    return str(pooch.file_hash(str(path), alg="md5"))
