"""Many methods under one protocol: what is made once is taken, and everybody has the same chance."""

from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.compare import ALWAYS, compare
from tests.runtime.rounds import small

pytestmark = pytest.mark.xdist_group("compare")


def asked(folder: Path, **more) -> Config:
    return small("fedavg", train={"epochs": 1}, rounds=2, out=str(folder), **{"seeds": [3, 4], **more})


@pytest.fixture(scope="module")
def folder(local_ray, tmp_path_factory) -> Path:
    """A finished comparison."""
    out = tmp_path_factory.mktemp("compare") / "out"
    compare(asked(out), ["fedper", "fedprox:mu=0.5"], tune=2)
    return out


def plan(folder: Path) -> Plan:
    return Plan.read(folder, [])


def test_everybody_has_as_many_points_and_the_same_seeds(folder):
    found = plan(folder)
    labels = ["fedper", "fedprox mu=0.5", *ALWAYS]
    assert found.labels() == labels
    assert [found.budget(label) for label in labels] == [2] * 5
    assert {entry.seed for entry in found.entries if entry.role == "candidate"} == {90}
    assert [[entry.seed for entry in found.final(label)] for label in labels] == [[3, 4]] * 5
    assert {entry.status for entry in found.entries} == {"done"}


def test_partitions_are_the_same_and_the_variant_is_what_was_asked(folder):
    records = plan(folder).records(folder)
    prints = [[Records(f).environment()["partition_fingerprint"] for f in run.folders] for run in records.values()]
    assert all(found == prints[0] for found in prints)
    assert records["fedprox mu=0.5"].config()["method"]["mu"] == 0.5


def test_its_files_are_there(folder):
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "table.csv").read_text().count("\n") == 6
    assert "\\bottomrule" in (folder / "table.tex").read_text()
    assert (folder / "table.md").read_text().startswith("| method |")


def test_another_seed_and_another_method_add_only_what_is_missing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    found = compare(asked(folder, seeds=[3, 4, 5]), ["fedper", "fedprox:mu=0.5", "ditto"], tune=2)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    assert before.items() <= after.items()
    assert len(after) - len(before) == 5 + 2 + 3  # a seed of each, and the new one's two points and three seeds
    assert set(found.table["method"]) == {"fedper", "fedprox mu=0.5", "ditto", *ALWAYS}


def test_without_tuning_everybody_runs_at_its_defaults(local_ray, tmp_path):
    compare(asked(tmp_path / "out", seeds=[0], data={"name": "digits", "val": 0}), ["fedper"], tune=0)
    found = plan(tmp_path / "out")
    assert {entry.role for entry in found.entries} == {"final"}
    assert set(map(str, found.choices.values())) == {"{}"}
