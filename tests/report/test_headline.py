"""The line under the title says how the study was made."""

import json

import pytest

from fedbench.report.headline import study_subtitle
from fedbench.report.study import Study
from tests.report.reading import Make


@pytest.mark.parametrize("reuse", [False, True])
def test_clients_that_share_images_are_said_under_the_title(make_run: Make, reuse: bool) -> None:
    folder = make_run(seeds=(0,), partition_keys={"name": "shards", "images": 50, "reuse": reuse})
    said = "images 50, clients may share samples)" if reuse else "images 50)"
    assert said in study_subtitle(Study.load(folder))


def test_records_of_older_versions_name_their_partition_without_its_keys(make_run: Make) -> None:
    folder = make_run(seeds=(0,), partition_keys={"name": "shards", "clients": 12})
    assert "12 clients, shards (classes 2);" in study_subtitle(Study.load(folder))
    path = folder / "environment.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "partition_headline"}))
    assert "12 clients, shards;" in study_subtitle(Study.load(folder))


def test_seeds_that_were_added_are_named(sequential):
    study = sequential()
    study.plan.config = {**study.plan.config, "seeds": [0, 1, 2, 3, 4]}
    assert "seeds 0 to 7" in study_subtitle(study)
