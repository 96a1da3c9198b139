"""Flags of the commands for papers."""

import pytest

from fedbench.cli.figure import FLAGS
from fedbench.cli.paper import label_of, shown_methods, usage_text
from fedbench.cli.parse import read_flags
from fedbench.errors import ConfigError


def test_methods_and_names_are_labels_of_the_study(tmp_path):
    words = ["--methods", "fedcac:tau=0.3,beta=5,local", "ditto", "--names", "local=Local training,ditto=Ditto"]
    folder, asked = read_flags([str(tmp_path), *words, "fedcac:tau=0.3,beta=5=FedCAC, short"], "figure", FLAGS)
    assert folder == tmp_path
    assert shown_methods(asked) == {
        "methods": ["fedcac tau=0.3,beta=5", "local", "ditto"],
        "names": {"local": "Local training", "ditto": "Ditto", "fedcac tau=0.3,beta=5": "FedCAC, short"},
    }
    assert label_of("package.module:Class") == "package.module:Class"
    _, asked = read_flags([str(tmp_path), "--methods", "fedcac tau=0.3"], "figure", FLAGS)
    assert shown_methods(asked)["methods"] == ["fedcac tau=0.3"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nmaes", "a=b"], "unknown flag --nmaes: did you mean names or methods?; see fedbench figure --help"),
        (["--rounds=3"], "unknown flag --rounds: "),
        (["--what"], "--what: takes one value, NAME"),
        (["--names", "a"], "--names a: must be NAME=TEXT"),
        (["word"], "unexpected argument 'word'"),
    ],
)
def test_a_mistake_is_one_line(words, line, tmp_path):
    with pytest.raises(ConfigError) as told:
        shown_methods(read_flags([str(tmp_path), *words], "figure", FLAGS)[1])
    assert str(told.value).startswith(line)


def test_help_lists_the_flags():
    text = usage_text("figure", "Draws.", FLAGS)
    assert text.startswith("usage: fedbench figure DIR [flags]\n\nDraws.\n")
    assert all(f"--{flag.name}" in text and flag.description[:20] in text for flag in FLAGS)
