"""Files fetched over HTTP: the checksum decides, and what went wrong is said in few words."""

import socket

import pytest

from fedbench.data.reading import download
from fedbench.data.reading.download import Download, failure_reason, fetch, file_md5
from tests.data.reading.serving import NOWHERE, md5


def failed(folder, address: str, known: str = "0" * 32) -> str:
    with pytest.raises((OSError, ValueError)) as caught:
        fetch(Download((f"{address}file",), known), folder)
    assert not (folder / "file").exists()
    return failure_reason(caught.value)


def test_a_file_with_the_published_sum_is_kept_as_it_was_sent(tmp_path, server):
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    (tmp_path / "there").mkdir()
    seen: list[tuple[int, int]] = []
    wanted = Download((f"{server}file?download=1",), md5(tmp_path / "file"))
    fetch(wanted, tmp_path / "there", lambda *step: seen.append(step))
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]
    assert file_md5(tmp_path / "there" / "file") == wanted.md5
    assert seen[0] == (2**20, 3_000_000)
    assert seen[-1] == (3_000_000, 3_000_000)


def test_why_a_download_failed_is_said_in_few_words(tmp_path, server, monkeypatch):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(b"x")
    assert failed(tmp_path, NOWHERE) == "[Errno 111] Connection refused"
    assert failed(tmp_path, f"{server}nothing/").startswith("404 Client Error: File not found")
    assert "does not match the known hash" in failed(tmp_path, f"{server}served/")
    monkeypatch.setattr(download, "HTTP_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert failed(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/") == "no answer"
