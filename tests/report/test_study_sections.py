"""The sections with figures of a study."""

import pandas as pd
import pytest

from tests.report.conftest import add_newcomers
from tests.report.reading import Make, page_of


def test_a_hundred_clients_fit_on_the_page(make_run: Make) -> None:
    page = page_of(make_run(clients=100, seeds=(0,), rounds=3))
    assert "The first 40 of 100 clients." in page.text


def test_newcomers_have_a_file(make_run: Make) -> None:
    folder = make_run()
    add_newcomers(folder, 0.7)
    page_of(folder)
    assert pd.read_csv(folder / "newcomers.csv")["mean"].tolist() == pytest.approx([0.52, 0.62, 0.72, 0.62])
