"""Many methods under one protocol: what is made once is taken, and everybody has the same chance."""

from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.compare import ALWAYS, Asked, compare
from fedbench.studies.contenders import Contender
from fedbench.studies.contest import hold
from tests.runtime.rounds import small

pytestmark = pytest.mark.xdist_group("compare")


METHODS = ["fedprox:mu=0.5"]
LABELS = ["fedprox mu=0.5", *ALWAYS]
OVER = {"participation": [0.5, 1]}
SETTINGS = ["participation=0.5", "participation=1"]


def asked(folder: Path, **more) -> Config:
    return small("fedavg", train={"epochs": 1}, rounds=2, out=str(folder), **{"seeds": [3], **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished comparison in two settings."""
    out = tmp_path_factory.mktemp("compare") / "out"
    compare(asked(out), METHODS, over=OVER, tune=2, at_once=1)
    return out


def plan(folder: Path, setting: str) -> Plan:
    return Plan.read(folder / "settings" / setting)


@pytest.mark.parametrize("setting", SETTINGS)
def test_everybody_has_as_many_points_and_the_same_seeds(folder, setting):
    found = plan(folder, setting)
    assert found.labels() == LABELS
    assert [found.budget(label) for label in LABELS] == [2] * 4
    assert {entry.seed for entry in found.entries if entry.role == "candidate"} == {90}
    assert [[entry.seed for entry in found.final(label)] for label in LABELS] == [[3]] * 4
    assert {entry.status for entry in found.entries} == {"done"}


def test_a_setting_is_asked_of_everybody_and_the_variant_is_what_was_asked(folder):
    for setting, share in zip(SETTINGS, OVER["participation"], strict=True):
        records = plan(folder, setting).records(folder / "settings" / setting)
        prints = [[Records(f).environment()["partition_fingerprint"] for f in run.folders] for run in records.values()]
        assert all(found == prints[0] for found in prints)
        assert {run.config()["participation"] for run in records.values()} == {share}
        assert records["fedprox mu=0.5"].config()["method"]["mu"] == 0.5


def test_its_files_are_there(folder):
    for place in (folder, *(folder / "settings" / setting for setting in SETTINGS)):
        assert (place / "report.html").stat().st_size > 10_000
        assert "\\bottomrule" in (place / "table.tex").read_text()
        assert (place / "table.md").read_text().startswith("| method |")
    assert len(compare(asked(folder), METHODS, over=OVER, tune=2, at_once=1).table) == 2 * len(LABELS)


def test_another_seed_and_another_method_in_one_setting_add_only_what_is_missing(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    found = Asked([*map(Contender.named, METHODS), Contender.named("ditto")], 2, [90], folder.absolute())
    hold([found.contest(asked(folder, seeds=[3, 4], participation=1), folder / "more")], at_once=1)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    assert before.items() <= after.items()
    assert len(after) - len(before) == 4 + 2 + 2  # a seed of each, and the new one's two points and two seeds


def test_without_tuning_everybody_has_one_point_and_needs_no_validation(tmp_path):
    contest = Asked([Contender.named("fedper")], 0, [90], tmp_path).contest(
        asked(tmp_path, data={"name": "digits", "val": 0}), tmp_path
    )
    assert [contender.points for contender in contest.contenders] == [({},)] * 4
    assert contest.candidates() == []


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({"method.mu": [1, 2]}, "over: method.mu: settings are"),
        ({"seeds": [1, 2]}, "over: seeds: settings are"),
        ({"rounds": [3]}, "over: rounds = .3.: must be two or more different values"),
        ({"rounds": [3, 3]}, "over: rounds = .3, 3.: must be two or more different values"),
        ({"partition.alpha": [0.1, -1]}, "over: partition.alpha = -1"),
        ({"data": ["digits", "parquet:/nowhere"]}, "/nowhere"),
    ],
)
def test_what_makes_no_settings_is_refused_before_anything_runs(tmp_path, over, line):
    with pytest.raises(ConfigError, match=line):
        compare(asked(tmp_path / "out"), ["fedper"], over=over, tune=2, at_once=1)
    assert not (tmp_path / "out").exists()
