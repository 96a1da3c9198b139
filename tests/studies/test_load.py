"""Results and models are taken up again from their folders."""

import pandas as pd
import pytest
import torch

import fedbench
from fedbench.errors import ConfigError
from fedbench.studies.run import Result
from tests.runtime.rounds import small


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run that kept its models."""
    out = tmp_path_factory.mktemp("kept") / "out"
    return fedbench.run(small("fedper", rounds=1, seeds=[4], save_models=True, out=str(out)))


def test_a_run_is_what_it_was(kept):
    found = fedbench.load(kept.folder)
    assert isinstance(found, Result)
    assert found.config.key() == kept.config.key()
    pd.testing.assert_frame_equal(found.metrics, kept.metrics)
    assert set(found.table["method"]) == {"fedper"}
    assert found.answer.startswith("fedper reached ")


@pytest.mark.parametrize("point", ["after_agg", "after_fit"])
def test_a_model_that_was_kept_predicts_with_its_own_numbers(kept, point):
    client = int(kept.clients["client"].iloc[0])
    model = fedbench.load_model(kept.folder, client, point=point)
    saved = torch.load(kept.models / "seed-4" / f"client-{client}-{point}.pt")
    assert not model.training
    assert model.state_dict().keys() == saved.keys()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in saved.items())
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_model_that_was_not_kept_is_said(kept, tmp_path):
    with pytest.raises(
        ConfigError, match=r"client-99-after_agg\.pt: no model was kept .* there are \d+, such as client-"
    ):
        fedbench.load_model(kept.folder, 99)
    with pytest.raises(ConfigError, match="no such folder"):
        fedbench.load(tmp_path / "nothing")


def test_the_version_is_that_of_the_package():
    assert fedbench.__version__.count(".") == 2
