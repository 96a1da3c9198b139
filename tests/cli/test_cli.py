"""Commands and scripts: one line for a mistake, exit codes, quick help."""

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import COMMANDS, command, main
from fedbench.cli.exits import PrintedExit
from fedbench.errors import ConfigError

ROOT = Path(__file__).parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text and line in text for name, line in COMMANDS.items())


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["rnu"]) == 2
    assert capsys.readouterr().err == "fedbench: error: unknown command 'rnu': did you mean run?\n"


@pytest.mark.parametrize("name", ["run", "grid"])
def test_scripts_and_commands_say_the_same(name):
    script, module = python(f"experiments/{name}.py", "--help"), python("-m", "fedbench", name, "--help")
    assert script.returncode == module.returncode == 0
    assert script.stdout == module.stdout


def test_every_command_has_a_script_of_two_lines():
    # A script called wandb.py would be what every script beside it gets from `import wandb`.
    modules = {"push_wandb" if name == "wandb" else name: f"fedbench.cli.{name}" for name in COMMANDS}
    modules |= {"claims": "fedbench_papers.claims.command", "reproduce": "fedbench_papers.tables.command"}
    for name, module in modules.items():
        lines = [line for line in (ROOT / "experiments" / f"{name}.py").read_text().splitlines() if line]
        assert lines == [f"from {module} import main", "raise SystemExit(main())"]
    assert {path.stem for path in (ROOT / "experiments").glob("*.py")} == {*modules}


@pytest.mark.parametrize("arguments", [("--help",), ("--train.lr", "-1"), ("--nothing", "3")])
def test_help_and_mistakes_come_without_torch(arguments):
    code = (
        "import sys; from fedbench.cli import main; code = main(['run', *sys.argv[1:]]);"
        "sys.exit(77 if 'torch' in sys.modules or 'ray' in sys.modules else code)"
    )
    assert python("-c", code, *arguments).returncode == (0 if arguments == ("--help",) else 2)


def test_a_mistake_is_one_line_and_debug_shows_the_trace():
    plain, debug = (python("-m", "fedbench", "run", "--train.lr", "-1", *more) for more in ((), ("--debug",)))
    assert plain.returncode == debug.returncode == 2
    assert plain.stderr == "fedbench: error: train.lr = -1: must be a number > 0\n"
    assert plain.stdout == ""
    assert "Traceback" in debug.stderr


def test_a_module_that_ends_the_process_is_a_mistake_and_no_silent_success(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_exit.py").write_text("import sys\ndef make():\n    sys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "--data", "own_exit:make"], ["data", "own_exit:make", "--check"]):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.splitlines()[-1] == (
            "fedbench: error: own_exit.py:3 (in make): sys.exit(0) would end the whole command; return, or raise an "
            "exception"
        )
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["own_exit.py"]


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
    assert "is not a value in YAML" in said


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
