"""Results and models are taken up again from their folders."""

import pandas as pd
import plotly.graph_objects as go
import pytest
import torch

import fedbench
from fedbench.errors import ConfigError
from fedbench.studies.compare import Comparison
from fedbench.studies.grid import GridResult
from fedbench.studies.run import Result
from tests.report.conftest import write_comparison, write_grid
from tests.report.test_matrix import write_matrix
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


def test_a_grid_and_comparisons_show_their_answer_table_and_figures(tmp_path):
    one = fedbench.load(write_grid(tmp_path / "grid", space={"method.tau": [0.1, 0.3]}))
    assert isinstance(one, GridResult)
    assert one.best == {"method.tau": 0.3}
    write_comparison(tmp_path / "compare", {"local": 0.7, "fedper": 0.8})
    many = fedbench.load(tmp_path / "compare")
    assert isinstance(many, Comparison)
    over = fedbench.load(write_matrix(tmp_path / "over", {"local": 0.7, "fedper": 0.8}, {"local": 0.7, "fedper": 0.6}))
    for found, shown in ((one, "collaboration helped"), (many, "fedper reached 79.4"), (over, "fedper")):
        assert shown in found.answer
        html = found._repr_html_()
        assert found.report.absolute().as_uri() in html
        assert "<td>fedper</td>" in html or "<td>fedcac</td>" in html
        assert isinstance(found.figure(found.figures[0]), go.Figure)
    with pytest.raises(ConfigError, match=r"figure = curves: must be one of forest, .*curve-after_agg"):
        many.figure("curves")


def test_the_version_is_that_of_the_package():
    assert fedbench.__version__.count(".") == 2
