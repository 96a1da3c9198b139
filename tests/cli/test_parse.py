"""A command line becomes a configuration."""

import subprocess
import sys

import pytest

from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
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
from fedbench.errors import ConfigError
try:
    parse({flags})
except ConfigError as error:
    print("did you mean" in str(error), {{"torch", "pandas", "ray"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True set()\n", done.stderr
