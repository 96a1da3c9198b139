"""A command line becomes a configuration."""

import subprocess
import sys

import pytest

from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.errors import ConfigError


def test_keys_and_a_commands_own_flags():
    config, asked = parse(["--method", "fedper", "--train.lr", "0.1", "--again"], (Flag("again", "once more"),))
    assert (config.method.name, config.train.lr, asked.again) == ("fedper", 0.1, True)


@pytest.mark.parametrize(("flag", "said"), [("--help", "--train.lr"), ("--print-config", "method:")])
def test_help_and_the_configuration_are_printed_and_nothing_else(flag, said, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["--method", "fedper", flag])
    assert ended.value.code == 0
    assert said in capsys.readouterr().out


def test_keys_of_tuning_are_flags_and_a_section_of_files(tmp_path, capsys):
    flags = ["--tune", "3", "--tune-seeds", "90,91", "--until-decided", "--margin", "0.5", "--final-val", "0"]
    expected = Tuning(tune=3, tune_seeds=[90, 91], until_decided=True, margin=0.5, final_val=0)
    assert parse(flags, tuning=Tuning)[1].tuning == expected
    with pytest.raises(SystemExit):
        parse([*flags, "--print-config"], tuning=Tuning)
    (tmp_path / "shown.yaml").write_text(shown := capsys.readouterr().out)
    assert "  tune: 3                                 # default null" in shown.splitlines()
    again = parse(["--config", str(tmp_path / "shown.yaml"), "--margin", "2"], tuning=Tuning)[1].tuning
    assert again == expected.model_copy(update={"margin": 2.0})
    assert parse([], tuning=ComparisonTuning)[1].tuning == ComparisonTuning()


def test_help_shows_what_a_command_tunes_by_and_no_other_one_takes_it(tmp_path, capsys):
    for section, has_budget in ((Tuning, False), (ComparisonTuning, True)):
        with pytest.raises(SystemExit):
            parse(["--help"], tuning=section)
        said = " ".join(capsys.readouterr().out.split())
        assert "Optuna's proposals [grid, random or optuna; default grid]" in said
        assert "[list of whole numbers in [0, 2147483647]; default [90, 91, 92]]" in said
        assert ("--budget-steps " in said) == has_budget
    (tmp_path / "grid.yaml").write_text("tuning: {tunne: 3}")
    for argv, line in (
        (["--tune", "3"], "^unknown flag --tune: grid and compare take it"),
        (["--config", str(tmp_path / "grid.yaml")], r"^unknown key tunne: did you mean tune"),
    ):
        with pytest.raises(ConfigError, match=line):
            parse(argv)
    with pytest.raises(ConfigError, match=r"^unknown flag --budget-steps: compare takes it"):
        parse(["--budget-steps"], tuning=Tuning)


def test_one_file_serves_commands_that_tune_and_those_that_do_not(tmp_path, caplog):
    path = tmp_path / "shown.yaml"
    path.write_text("train: {lr: 0.2}\ntuning: {tune: 3, budget_steps: true}")
    shared = ["--config", str(path)]
    assert parse(shared, prog="fedbench compare", tuning=ComparisonTuning)[1].tuning.budget_steps
    assert not caplog.messages
    assert parse(shared, prog="fedbench grid", tuning=Tuning)[1].tuning == Tuning(tune=3)
    config, asked = parse(shared)
    assert (config.train.lr, asked.tuning) == (0.2, None)
    assert caplog.messages == [
        "no effect on fedbench grid: tuning.budget_steps",
        "no effect on fedbench run: tuning.tune, tuning.budget_steps",
    ]


def test_a_mistake_names_key_and_range():
    with pytest.raises(ConfigError, match=r"train\.lr.*-1"):
        parse(["--train.lr", "-1"])


@pytest.mark.parametrize(
    "flags",
    [
        ["--metod", "x"],
        ["--method", "fedprx"],
        ["--aggregator", "medain"],
        ["--data", "digit"],
        ["--partition", "shard"],
        ["--model", "resnet9"],
        ["--data.task", "regresion"],
    ],
)
def test_a_mistyped_name_is_refused_before_anything_large_is_imported(flags):
    code = f"""
import sys
from fedbench.cli.parse import parse
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.errors import ConfigError
try:
    parse({flags})
except ConfigError as error:
    print("did you mean" in str(error), {{"torch", "pandas", "ray"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True set()\n", done.stderr
