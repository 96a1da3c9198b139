"""A small field that has been run."""

from dataclasses import replace

import pytest

from fedbench_papers.field.study import run_field
from tests.papers.field.small import RUN


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """A results folder with one setting and the baselines beside fedper."""
    folder = tmp_path_factory.mktemp("field")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench_papers.field.study.RECORDED", folder / "shipped.parquet")
        run_field(replace(RUN, out=folder), trials=1)
    return folder
