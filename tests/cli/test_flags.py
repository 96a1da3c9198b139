"""Every configuration key is a flag; mistakes are one line; help is complete."""

import pytest
import yaml

from fedbench.cli.flags import CONFIG_KEYS, PRESETS, Flag, read, split_words
from fedbench.cli.parse import parse
from fedbench.errors import ConfigError
from fedbench.methods import checked_options
from tests.cli.reading import config

RESUME = (Flag("resume", "go on"),)


def mistake(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_dotted_names_are_flags():
    asked = config(
        "--method fedcac --method.tau 0.3 --data cifar10 --data.root /x --partition dirichlet --train.lr 0.05"
    )
    assert asked.method.name == "fedcac"
    assert asked.method.options == {"tau": 0.3}
    assert asked.data.name == "cifar10"
    assert str(asked.data.root) == "/x"
    assert asked.train.lr == 0.05


def test_arguments_of_an_own_model_are_flags():
    asked = config("--model pkg.mod:Class --model.hidden 64 --model.rate 1e-3 --model.sizes [1,2] --model.deep")
    assert asked.model.name == "pkg.mod:Class"
    assert asked.model.options == {"hidden": 64, "rate": 0.001, "sizes": [1, 2], "deep": True}


@pytest.mark.parametrize(
    "line", ["--seeds 0 1 2", "--seeds 0,1,2", "--seeds=0,1,2", "--seeds [0,1,2]", "--seeds 0, 1, 2"]
)
def test_lists_may_be_written_in_any_way(line):
    assert config(line).seeds == [0, 1, 2]


@pytest.mark.parametrize("line", ["--seed 3", "--seed=3", "--seeds 3"])
def test_one_of_several_may_be_written_in_the_singular(line):
    assert config(line).seeds == [3]
    assert config("--logger csv --train.epoch 2 --seed 3").loggers == ["csv"]
    flags = {"tune-seeds": Flag("tune-seeds", "", "SEED", many=True)}
    assert read(["--tune-seed", "7"], flags)[0].tune_seeds == ["7"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--rounds 5 --rounds 6", "--rounds is given twice, as --rounds 5 and as --rounds 6: give it once"),
        ("--seeds 0 1 --seed=2", "--seed is given twice, as --seeds 0 1 and as --seed 2: give it once"),
        ("--hosts 0 --resources.hosts 1", "--resources.hosts is given twice, as --hosts 0 and as"),
        ("--method fedper --method.name ditto", "--method.name is given twice, as --method fedper and as"),
        ("--model.hidden 3 --model.hidden 4", "--model.hidden is given twice"),
        ("--preset smoke --preset paper", "--preset is given twice, as --preset smoke and as --preset paper"),
    ],
)
def test_a_flag_is_given_once(line, said):
    assert mistake(line).startswith(said)


def test_flags_of_several_values_may_be_repeated():
    flags = {"cells": Flag("cells", "", "WORD", many=True)}
    assert read(["--cells", "a", "--cells", "b", "c"], flags)[0].cells == ["a", "b", "c"]


def test_an_argument_of_ones_own_is_what_it_is_called():
    assert config("--model pkg.mod:Class --model.weight 3").model.options == {"weight": 3}


@pytest.mark.parametrize("value", ["body.1,head", "body.1 head", "[body.1,head]"])
def test_words_of_an_option_may_be_written_in_any_way(value):
    asked = config(f"--method fedper --method.extra_private {value}").method
    assert checked_options(asked).extra_private == ["body.1", "head"]


def test_words_may_be_written_with_commas_and_spaces():
    assert split_words(["a", "b,c,", ",d"]) == ["a", "b", "c", "d"]
    assert split_words([",", ""]) == []


@pytest.mark.parametrize(
    ("line", "shuffle", "keep"),
    [
        ("--train.shuffle false", False, False),
        ("--train.shuffle=true --train.keep_optimizer", True, True),
        ("--train.keep-optimizer", True, True),
    ],
)
def test_booleans_may_stand_alone(line, shuffle, keep):
    assert (config(line).train.shuffle, config(line).train.keep_optimizer) == (shuffle, keep)


def test_resources_have_short_names():
    asked = config("--hosts 4 --gpus-per-host 0.25 --cpus-per-host 2 --address auto").resources
    assert (asked.hosts, asked.gpus_per_host, asked.cpus_per_host, asked.address) == (4, 0.25, 2, "auto")


def test_text_stays_what_was_typed():
    asked = config("--name 007 --wandb.tags 1e3,x --out 2026 --wandb.group none")
    assert (asked.name, asked.wandb.tags, str(asked.out), asked.wandb.group) == ("007", ["1e3", "x"], "2026", None)


@pytest.mark.parametrize("key", CONFIG_KEYS)
def test_every_key_is_a_flag(key):
    assert list(read([f"--{key}", "1"], {})[1]) == [key]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--train.lrr 3", ["unknown flag --train.lrr", "--train.lr"]),
        ("--lr 3", ["unknown flag --lr", "did you mean --train.lr?"]),
        ("--hostss 3", ["unknown flag --hostss", "--hosts"]),
        ("--zzz 3", ["unknown flag --zzz", "--help-all"]),
        ("fedcac", ["unexpected argument 'fedcac'", "--method"]),
        ("--train.lr", ["--train.lr", "needs a value", "number > 0"]),
        ("--train.lr 1 2", ["--train.lr 1 2", "takes one value"]),
        ("--train.lr -1", ["train.lr = -1", "> 0"]),
        ("--rounds many", ["rounds = 'many'", "whole number in [1, 10000000]"]),
        ("--model.x [1", ["'[1'", "not a value in YAML"]),
        ("--seeds", ["--seeds", "needs a value"]),
        ("--debug 3", ["--debug 3", "takes no value"]),
        ("--config", ["--config", "takes one value"]),
        ("--config /nowhere.yaml", ["/nowhere.yaml", "cannot be read"]),
        ("--preset fedcac-cifar", ["unknown preset", "fedcac-cifar10"]),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(line, parts):
    text = mistake(line)
    for part in parts:
        assert part in text


def test_flags_beat_the_file_and_the_file_beats_the_preset(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("rounds: 7\ntrain: {lr: 1e-2}\nmethod: fedcac\nmethod.tau: 0.2\n")
    asked = config(f"--preset fedcac-cifar10 --config {path} --train.lr 0.5")
    assert (asked.rounds, asked.train.lr, asked.method.options["tau"]) == (7, 0.5, 0.2)
    assert asked.method.options["beta"] == 100  # the preset's, for the same method
    assert asked.partition.clients == 40


def test_a_section_of_a_file_is_a_mapping(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("train: 3\n")
    assert mistake(f"--config {path} --train.epochs 1").startswith("train = 3: must be a mapping of the keys optimizer")


def test_another_method_drops_the_options_of_the_one_below(tmp_path):
    asked = config("--preset fedcac-cifar10 --method fedprox --method.mu 0.1")
    assert asked.method.options == {"mu": 0.1}
    assert asked.data.val == 0


def test_options_of_a_file_that_names_no_method_are_those_of_the_flag(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("method: {weighting: uniform}\nmodel: {hidden: 8}\n")
    asked = config(f"--config {path} --method fedavg --model mlp")
    assert (asked.method.options, asked.model.options) == ({"weighting": "uniform"}, {"hidden": 8})


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.yaml")), ids=lambda path: path.stem)
def test_presets_are_legal(path, capsys):
    with pytest.raises(SystemExit):
        parse(["--preset", path.stem, "--print-config"])
    assert yaml.safe_load(capsys.readouterr().out)["data"]["val"] == 0


def test_the_commands_own_flags_come_apart():
    asked = parse(["--resume", "--rounds", "3"], RESUME)[1]
    assert asked.resume is True
    assert parse([], RESUME)[1].resume is False


def test_help_names_every_key_with_range_and_default(capsys):
    with pytest.raises(SystemExit):
        parse(["--help-all"], RESUME)
    text = capsys.readouterr().out
    for key in CONFIG_KEYS:
        assert key.rpartition(".")[2].replace("_", "-") in text or key in text
    assert "--resume" in text
    assert "[number in [0, 1); default 0.1]" in " ".join(text.split())
