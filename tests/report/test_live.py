"""A page that is served while runs go on."""

from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fedbench.errors import ConfigError
from fedbench.report.live import SHORTEST_PAUSE, LivePage, serve


@pytest.fixture
def address(make_run):
    server = serve(make_run())
    Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def got(address, name):
    with urlopen(f"{address}/{name}") as answer:
        return answer.read().decode()


def test_the_frame_the_page_and_its_version_are_served_and_no_other_file(address):
    assert 'src="page"' in got(address, "")
    assert "report.html" not in got(address, "")
    assert "<h1>" in got(address, "page")
    assert got(address, "version") == got(address, "version")
    for name in ("config.yaml", "..%2Fsecret.csv", "../secret.csv", "nothing.png", f"{'n' * 5000}.csv"):
        with pytest.raises(HTTPError, match="404"):
            got(address, name)


def test_a_link_is_followed_within_the_folder_only(tmp_path):
    (tmp_path / "secret.csv").write_text("secret")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "own.csv").write_text("own")
    (folder / "near.csv").symlink_to("own.csv")
    (folder / "far.csv").symlink_to(tmp_path / "secret.csv")
    page = LivePage(folder)
    assert page.linked_file("near.csv") == b"own"
    assert page.linked_file("far.csv") is None


def test_a_page_is_made_again_once_it_is_due(make_run):
    folder, now = make_run(), [0.0]
    page = LivePage(folder, clock=lambda: now[0])
    first = page.version()
    records = folder / "metrics.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[:-4]))
    assert page.version() == first
    now[0] = SHORTEST_PAUSE
    assert page.version() != first


def test_a_folder_without_results_says_so_and_is_looked_at_again(tmp_path):
    assert b"Nothing to show yet" in LivePage(tmp_path).text()


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with serve(tmp_path) as server, pytest.raises(ConfigError, match=r"--port .*: cannot be used"):
        serve(tmp_path, server.server_address[1])
