"""What ends a command has an exit code, and a line or a stack trace."""

import errno
import re

import pytest

from fedbench.cli import command, main
from fedbench.cli.exits import PrintedExit
from fedbench.errors import ConfigError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
        (PrintedExit(), 0),
        (SystemExit(0), 2),
    ],
)
def test_exit_codes(error, code):
    @command
    def failing(argv):
        raise error

    assert failing([]) == code


def test_words_of_thousands_of_letters_are_shortened(capsys):
    for words in (["run", "--" + "a" * 5000, "3"], ["run", "--data", "a" * 5000], ["run", "--rounds", "9" * 5000]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert len(said) < 600
        assert "..." in said
    assert "must be a whole number" in said


def test_of_a_path_that_is_too_long_the_long_part_is_named(capsys):
    @command
    def long(argv):
        raise OSError(errno.ENAMETOOLONG, "File name too long", f"out/{'n' * 400}/metrics.jsonl")

    assert long([]) == 2
    assert re.fullmatch(r"fedbench: error: n+\.\.\.n+: too long for the name of a file\n", capsys.readouterr().err)


def test_a_full_disk_is_one_line_with_the_file_and_how_to_go_on(capsys):
    @command
    def full(argv):
        raise OSError(errno.ENOSPC, "No space left on device", "out/metrics.jsonl")

    assert full([]) == 1
    assert capsys.readouterr().err == (
        "fedbench: error: out/metrics.jsonl: No space left on device; free some space and "
        "repeat the command: it continues from the last checkpoint\n"
    )


def test_a_file_that_may_not_grow_is_not_answered_by_making_room(capsys):
    @command
    def limited(argv):
        raise OSError(errno.EFBIG, "File too large", "out/metrics.jsonl")

    assert limited([]) == 1
    assert "raise the limit of a file's size (`ulimit -f`) and repeat the command" in capsys.readouterr().err


def test_a_file_without_permission_is_not_answered_by_making_room(capsys):
    @command
    def forbidden(argv):
        raise PermissionError(errno.EACCES, "Permission denied", "out/metrics.jsonl")

    assert forbidden([]) == 1
    said = capsys.readouterr().err
    assert "out/metrics.jsonl: Permission denied; change its permissions and repeat the command" in said
    assert "space" not in said


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        MemoryError("Unable to allocate 7 GiB"),
    ],
)
def test_too_little_memory_is_one_line_with_what_is_needed(error, capsys):
    @command
    def starving(argv):
        raise error

    assert starving([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "raise its limit (`ulimit -v`" in line


def test_another_import_that_fails_keeps_its_trace(capsys):
    @command
    def broken(argv):
        raise ImportError("no module named mine")

    assert broken([]) == 1
    assert "Traceback" in capsys.readouterr().err
