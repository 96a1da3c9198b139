"""What takes long says so first, on stderr, once."""

import subprocess
import sys

import pytest

from fedbench.cli.lines import loading, log, log_to_stderr


def test_remarks_are_lines_on_stderr_once_and_warnings_as_often_as_they_come(capsys):
    with log_to_stderr(), log_to_stderr():
        for _ in range(2):
            log.info("starting Ray")
            log.warning("Ray has died")
    said = capsys.readouterr()
    assert said.err.splitlines() == ["starting Ray", "Ray has died", "Ray has died"]
    assert said.out == ""


def test_after_a_command_the_log_is_as_it_was(capsys):
    before = log.level, list(log.handlers)
    with pytest.raises(KeyError), log_to_stderr():
        raise KeyError
    assert (log.level, log.handlers) == before
    log.info("nobody listens")
    assert capsys.readouterr().err == ""


def test_a_library_that_is_loaded_already_takes_no_time(capsys):
    with log_to_stderr():
        loading()
    assert "torch" in sys.modules
    assert capsys.readouterr().err == ""


END_AT_LIBRARIES = """
import os, sys

class End:
    def find_spec(self, name, *more):
        if name in ("torch", "pandas") or name.startswith("ray."):
            os.write(2, b"slow from here on")
            os._exit(0)

sys.meta_path.insert(0, End())
from fedbench.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("line", ["run", "grid", "compare --methods fedper", "data digits", "report .", "methods"])
def test_the_first_line_comes_before_what_takes_long(line, tmp_path):
    """On stderr: stdout stays what other programs read."""
    words = [sys.executable, "-c", END_AT_LIBRARIES, *line.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    first, slow = done.stderr.splitlines()
    assert first.startswith(("loading PyTorch", "writing the report"))
    assert (slow, done.stdout) == ("slow from here on", "")
