"""A folder is for one command at a time, and nothing of a killed one stays."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.folder_locks import locked_folder
from fedbench.studies.run import run
from tests.runtime.rounds import small


def test_a_folder_is_for_one_command_at_a_time(tmp_path):
    with locked_folder(tmp_path):
        with pytest.raises(ConfigError, match="another command is at work here"), locked_folder(tmp_path, patience=0):
            pass
        waiting = ThreadPoolExecutor(1).submit(lambda: locked_folder(tmp_path).__enter__())
        time.sleep(0.05)
        assert not waiting.done()
    waiting.result(timeout=5)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/sub: cannot be written, because .*/file is a file; move it"):
        run(small(out=str(tmp_path / "file" / "sub")))


def test_what_a_killed_command_left_beside_a_finished_run_goes(tmp_path):
    config = small(rounds=1, out=str(tmp_path))
    run(config, report=False)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / ".report.html.abc.part").write_text("half")
    run(config, report=False)
    assert not (tmp_path / "checkpoint").exists()
    assert not list(tmp_path.glob(".*"))
