"""The flags of a comparison."""

import pytest

from fedbench.cli.compare import FLAGS, TUNING, preview, read_methods
from fedbench.cli.parse import parse
from fedbench.errors import ConfigError
from fedbench.studies.compared_methods import BASELINES


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["fedper,fedcac"], ["fedper", "fedcac"]),
        (["fedper", "fedcac"], ["fedper", "fedcac"]),
        (["fedcac:tau=0.3,beta=5,co-pfl"], ["fedcac:tau=0.3,beta=5", "co-pfl"]),
        (["my.module:Class,fedprox:mu=1"], ["my.module:Class", "fedprox:mu=1"]),
        (["my.module:Class:mu=1,nu=2"], ["my.module:Class:mu=1,nu=2"]),
    ],
)
def test_names_and_variants_come_apart(texts, names):
    assert read_methods(texts) == names


def test_the_help_names_the_baselines():
    said = {flag.name: flag.description for flag in FLAGS}
    assert f"besides {', '.join(BASELINES[:-1])} and {BASELINES[-1]}: " in said["methods"]


@pytest.mark.parametrize("texts", [[], [","], ["tau=1"], ["fedper,tau=1"]])
def test_mistakes_in_them_are_refused(texts):
    with pytest.raises(ConfigError, match="methods"):
        read_methods(texts)


def test_the_seeds_that_will_be_run_are_shown(capsys):
    for argv in (["--methods", "fedper"], ["--methods", "fedper", "--seeds", "7"]):
        with pytest.raises(SystemExit):
            parse([*argv, "--tune", "0", "--print-config"], FLAGS, preview=preview, tuning=TUNING)
    shown = [line.split("  #")[0].strip() for line in capsys.readouterr().out.splitlines() if "seeds: " in line[:8]]
    assert shown == ["#seeds: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "seeds: [7]"]
