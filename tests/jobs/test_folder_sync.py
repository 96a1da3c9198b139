"""What a job leaves on a machine that does not see the results folder is at home in the end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.jobs.folder_sync import FileServer, Supplies, file_server, read_files, synced_copy
from fedbench.jobs.job import Job
from fedbench.runtime.states import checkpoint


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def job(tmp_path) -> Job:
    folder = tmp_path / "results" / "run"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seeds: [0]")
    return Job(Config(resources={"scratch": tmp_path / "scratch"}), folder, "fedavg")


@pytest.fixture(scope="module")
def seeing(local_ray, tmp_path_factory) -> Iterator[Supplies]:
    """For a machine that sees the results folder."""
    with file_server(local_ray, tmp_path_factory.mktemp("study")) as (server, mark):
        yield Supplies(server, mark, {})


@pytest.fixture
def blind(seeing) -> Supplies:
    """For a machine that does not see it."""
    return replace(seeing, mark=seeing.mark.with_name("elsewhere"))


def test_a_machine_that_sees_the_folder_works_in_it(job, seeing):
    with synced_copy(job, seeing) as (own, _):
        assert own is job
    assert files(job.folder.parent) == {"run/config.yaml": "seeds: [0]"}


def test_a_machine_that_does_not_works_on_a_copy_and_sends_it_home(job, blind, tmp_path):
    with synced_copy(job, blind) as (own, send):
        assert own.folder != job.folder
        assert files(own.folder) == {"config.yaml": "seeds: [0]"}
        first, second = (own.folder / "checkpoint" / f"round-00000{n}.safetensors" for n in (2, 4))
        first.parent.mkdir(parents=True)
        first.write_text("2")
        (own.folder / ".lock").touch()
        send()
        assert files(job.folder) == {"config.yaml": "seeds: [0]", f"checkpoint/{first.name}": "2"}
        first.rename(second)
        (own.folder / "metrics.jsonl").write_text("{}")
    assert files(job.folder) == {
        "config.yaml": "seeds: [0]",
        "metrics.jsonl": "{}",
        f"checkpoint/{second.name}": "2",
    }
    assert not first.exists()
    assert not [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert not (job.folder / "checkpoint" / first.name).exists()


def test_what_was_done_before_an_error_is_at_home_too(job, blind):
    def fail() -> None:
        with synced_copy(job, blind) as (own, _):
            (own.folder / "error.txt").write_text("KeyError")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert files(job.folder)["error.txt"] == "KeyError"


def test_a_checkpoint_counts_when_all_of_it_is_there(tmp_path, monkeypatch):
    """Shards are written before what names them."""
    written: list[str] = []
    monkeypatch.setattr("fedbench.jobs.folder_sync.write_atomically", lambda path, content: written.append(path.name))
    checkpoint.save(tmp_path / "checkpoint", 2, {})
    kept = ["checkpoint/round-000002.safetensors", "checkpoint/states/000002-0.safetensors", "zz"]
    assert [path.name for path in tmp_path.rglob("round-*")] == [Path(kept[0]).name]
    FileServer().write(tmp_path, dict.fromkeys(kept, b""), kept)
    assert written == ["000002-0.safetensors", "zz", "round-000002.safetensors"]


def test_a_file_that_is_gone_by_the_time_it_is_read_is_left_out(tmp_path):
    (tmp_path / "here").write_text("a")
    assert read_files(tmp_path, ["here", "gone"]) == {"here": b"a"}
