"""Commands and scripts: one line for a mistake, quick help."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import COMMANDS, main

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
