"""Scripts by which shells complete commands, flags and names, run by these shells."""

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from fedbench.cli import COMMANDS, completion
from fedbench.cli.flags import CONFIG_KEYS, PRESET_NAMES
from fedbench.data import sources
from fedbench.methods import METHODS


@cache
def script(shell: str) -> str:
    """What the command prints. Must work without PyTorch, which takes seconds to load."""
    code = (
        "import sys; from fedbench.cli import main; code = main(['completion', sys.argv[1]]);"
        "sys.exit(77 if {'torch', 'ray', 'pandas'} & {*sys.modules} else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, shell], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory):
    """Asks a real bash how it completes the last of these words; without Python, so that nothing is loaded then."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("completion")
    (folder / "study").mkdir()
    (folder / "one.yaml").touch()
    (folder / "script").write_text(script("bash"))

    code = 'source script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_fedbench; printf "%s\\n" "${COMPREPLY[@]}"'

    def ask(*words: str) -> set[str]:
        call = [bash, "-c", code, "bash", "fedbench", *words]
        done = subprocess.run(call, cwd=folder, env={"PATH": ""}, capture_output=True, text=True)
        assert done.stderr == ""
        return {*done.stdout.split()}

    return ask


def test_commands(complete):
    assert complete("") >= {*COMMANDS, "claims", "field", "reproduce"}
    assert complete("re") == {"report", "reproduce"}


def test_every_key_is_a_flag(complete):
    flags = complete("run", "--")
    assert {completion.flag_of(key) for key in CONFIG_KEYS} <= {flag.removeprefix("--") for flag in flags}
    assert {"--hosts", "--train.lr", "--print-config", "--resume"} <= flags
    assert complete("grid", "--sp") == {"--space"}
    assert complete("claims", "--onl") == {"--only"}
    assert {flag for flag in complete("wandb", "study", "--") if "." in flag} >= {"--wandb.project", "--wandb.mode"}
    assert "--train.lr" not in complete("wandb", "study", "--")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("run", "--method", ""), METHODS.names()),
        (("compare", "--methods", "fedper", "dit"), ["ditto"]),
        (("run", "--rounds", "3", "--data", ""), [name for name in sources.names() if ":" not in name]),
        (("run", "--partition", "dirichlet-"), ["dirichlet-fixed"]),
        (("run", "--model", "resnet1"), ["resnet10", "resnet18"]),
        (("run", "--aggregator", "trimmed"), ["trimmed-mean"]),
        (("run", "--loggers", "csv", "w"), ["wandb"]),
        (("run", "--preset", ""), PRESET_NAMES),
        (("run", "--train.optimizer", ""), ["auto", "module", "sgd", "adam", "adamw"]),
        (("run", "--evaluate.by", "c"), ["class"]),
        (("grid", "--search", ""), ["grid", "random", "optuna"]),
        (("table", "study", "--what", "prot"), ["protocol"]),
        (("export", "study", "--format", "o"), ["onnx"]),
        (("data", "cifar100"), ["cifar100"]),
        (("methods", "fedca"), ["fedcac"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("report", "st"), ["study"]),
        (("run", "--config", "one"), ["one.yaml"]),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_values(complete, words, values):
    assert complete(*words) == {*values}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_it(shell, tmp_path):
    text = script(shell)
    assert all(name in text for name in ("dirichlet-fixed", "fedcac", "train.optimizer", "reproduce"))
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"there is no {shell}: only the text was tested")
    (tmp_path / "script").write_text(text)
    done = subprocess.run([found, "-n", "script"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_description_runs_as_code():
    made = completion.parser()
    (inside,) = made._subparsers._group_actions  # type: ignore[union-attr]
    commands: dict[str, Any] = inside.choices  # type: ignore[assignment]
    said = [action.help or "" for command in commands.values() for action in command._actions]
    assert len(said) > len(CONFIG_KEYS)
    assert not [text for text in said if {*text} & {*"`$\\'\""}]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish(tmp_path):
    (tmp_path / "script").write_text(script("fish"))
    lines = ("fedbench repo", "fedbench run --method fedca", "fedbench run --partition.al")
    ask = "; ".join(["source script", *(f"complete -C '{line}'" for line in lines)])
    done = subprocess.run(
        ["fish", "--no-config", "-c", ask],
        cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    found = [word.partition("\t")[0] for word in done.stdout.splitlines()]
    assert found == ["report", "fedcac", "--partition.alpha"]


def test_another_shell_is_refused(capsys):
    assert completion.main(["tcsh"]) == 2
    assert capsys.readouterr().err == "fedbench: error: completion tcsh: did you mean zsh or fish or bash?\n"
    assert completion.main(["--help"]) == 0
    assert "fedbench completion bash >" in capsys.readouterr().out
