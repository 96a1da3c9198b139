"""Kept models from the command line."""

import pytest

from fedbench.cli.export import main
from fedbench.studies.run import run
from tests.runtime.rounds import small


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    run(small("fedper", rounds=1, save_models=True, out=folder), report=False)
    return folder


def test_it_says_what_it_wrote_and_how_exact_it_is(kept, tmp_path, capsys):
    assert main([str(kept), "--client", "3", "--format", "torch.export", "--out", str(tmp_path / "x")]) == 0
    model, check, script = capsys.readouterr().out.splitlines()
    assert model.split() == ["model:", str(tmp_path / "x" / "model.pt2")]
    assert check.startswith("check:   largest difference from fedbench's outputs ")
    assert check.endswith(" over 32 samples")
    assert script.split()[:3] == ["predict:", "python", str(tmp_path / "x" / "predict.py")]


def test_weights_are_the_default_format(kept, capsys):
    assert main([str(kept), "--client", "3", "--point", "after_fit", "--seed", "0"]) == 0
    folder = kept / "exported" / "seed-0-client-3-after_fit-safetensors"
    assert capsys.readouterr().out.splitlines()[0] == f"model:   {folder / 'model.safetensors'}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "whose model? fedbench export "),
        (["--client", "x"], "--client x: must be a whole number from 0 or global"),
        (["--client", "3", "--seed", "-1"], "--seed -1: must be a whole number from 0"),
        (["--client", "3", "--train.lr", "1"], "unknown flag --train.lr: "),
        (["--client", "global"], "global/after_agg.safetensors: no model was kept"),
    ],
)
def test_other_words_are_one_line(words, line, kept, capsys):
    assert main([str(kept), *words]) == 2
    assert line in capsys.readouterr().err
