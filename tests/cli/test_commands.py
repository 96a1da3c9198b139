"""`fedbench COMMAND` and `python experiments/COMMAND.py` are the same; a user's mistake is one line."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import COMMANDS, command, main
from fedbench.cli.grid import Stages, read_baselines, read_seeds, read_space, read_trials
from fedbench.errors import ConfigError
from fedbench.methods import names
from fedbench.studies.execute import Outcome

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
    for name in COMMANDS:
        lines = [line for line in (ROOT / "experiments" / f"{name}.py").read_text().splitlines() if line]
        assert lines == [f"from fedbench.cli.{name} import main", "raise SystemExit(main())"]


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


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("x"), 2), (KeyboardInterrupt(), 130), (RuntimeError("x"), 1), (SystemExit(0), 0), (SystemExit(2), 2)],
)
def test_exit_codes(error, code):
    @command
    def failing(argv):
        raise error

    assert failing([]) == code


def test_methods_lists_all_of_them(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == names()


def test_methods_shows_the_options_of_one(capsys):
    assert main(["methods", "fedprox"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Li et al., MLSys 2020" in text
    assert "--method.mu weight of the proximal term, eq. 2 [number >= 0; default 0.01]" in text


@pytest.mark.parametrize("words", [["fedprocs"], ["fedprox", "fedcac"], ["--all"]])
def test_methods_refuses_what_it_does_not_know(words, capsys):
    assert main(["methods", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_space_is_keys_with_values():
    space = read_space(["method.tau=0.3,0.5", "train.lr=[1e-3,0.1]", "train.optimizer=sgd,adam"])
    assert space == {"method.tau": [0.3, 0.5], "train.lr": [0.001, 0.1], "train.optimizer": ["sgd", "adam"]}
    assert read_space([]) is None


def test_flags_of_the_grid_are_read():
    assert read_trials("3") == 3
    assert read_trials("auto") is None
    assert read_seeds(["0,1", "2"]) == [0, 1, 2]
    assert read_baselines(["local,fedavg"]) == ["local", "fedavg"]
    assert read_baselines(["none"]) == []
    assert read_baselines([]) is read_seeds([]) is read_trials(None) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_space(["tau"]),
        lambda: read_space(["tau="]),
        lambda: read_space(["method.tau=0.1", "method.tau=0.2"]),
        lambda: read_trials("0"),
        lambda: read_trials("many"),
        lambda: read_seeds(["a"]),
        lambda: read_seeds(["1", "1"]),
        lambda: read_seeds(["1.0"]),
        lambda: read_seeds([str(2**31)]),
        lambda: read_baselines(["locall"]),
    ],
)
def test_mistakes_in_them_are_refused(read):
    with pytest.raises(ConfigError):
        read()


def test_the_grid_shows_its_two_stages(capsys):
    stages = Stages("fedcac on digits")
    stages.update({"a": Outcome("done"), "b": Outcome("missing")}, ["b"])
    stages.update({"a": Outcome("done"), "b": Outcome("failed", "loss is NaN")}, [])
    stages.update({"final": Outcome("missing")}, ["final"])
    assert pickle.loads(pickle.dumps(stages)).failed == stages.failed  # Tune does this to whoever watches
    stages.stop()
    text = capsys.readouterr().err
    assert "grid of fedcac on digits: 2 runs" in text
    assert "final runs over the seeds: 1 runs" in text
    assert stages.failed == {"b": "loss is NaN"}
