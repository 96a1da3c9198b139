"""How methods stand, read from the record."""

import pandas as pd
import pytest

from fedbench_papers.field.record import RECORDED, FieldRecord
from fedbench_papers.field.standings import Field, Gain, family_of, kind_of
from tests.papers.field.made import DOWN, OPEN, UP, about, made_record, rows_of


@pytest.fixture
def field():
    return Field(made_record())


def test_a_standing_has_the_mean_over_seeds_and_the_verdict(field):
    standing = field.standings["clothes", "fedper"]
    assert standing.score == pytest.approx(0.77)
    assert standing.seeds == 2
    assert standing.may_be_best
    assert standing.over_local is not None
    assert standing.over_local.relation == "better"
    assert field.standings["clothes", "local"].over_local is None


@pytest.mark.parametrize(
    ("ends", "withheld", "relation"),
    [
        (UP, False, "better"),
        (DOWN, False, "worse"),
        (OPEN, False, "open"),
        ((0.0, -0.01, 0.01), False, "equal"),
        (UP, True, "withheld"),
        (OPEN, True, "open"),
    ],
)
def test_the_relation_is_that_of_the_interval(ends, withheld, relation):
    assert Gain(*ends, 5, 0.02, withheld).relation == relation


def test_two_seeds_decide_nothing():
    assert Gain(*UP, 2, 0.02, False).relation == "open"


def test_gains_are_told_in_points():
    assert Gain(*UP, 5, 0.02, False).text() == "+5.0 (+3.0 to +7.0)"
    assert Gain(*DOWN, 5, 0.02, False).text() == "−10.0 (−15.0 to −5.0)"


def test_methods_of_other_seeds_are_compared_over_those_they_share():
    """Local training has a third, easy seed; ditto is ahead where both were run."""
    rows = rows_of("a", {"local": [0.5, 0.5, 0.9], "ditto": [0.6, 0.6], "fedper": [0.55, 0.55, 0.95]}, {})
    field = Field(FieldRecord().with_setting("a", rows, about("A")))
    assert field.difference("a", "ditto", "local") == pytest.approx(0.1)
    assert [one.method for one in field.in_setting("a")] == ["ditto", "fedper", "local"]
    assert field.difference("a", "ditto", "fedrep") is None


def alike(**scores):
    """A setting with the scores of three seeds, after aggregation and after the fit."""
    given = {"local": [0.5, 0.6, 0.7], "fedavg": [0.6, 0.7, 0.8], **scores}
    rows = pd.concat([rows_of("a", given, {}, point=point) for point in ("after_agg", "after_fit")])
    return FieldRecord().with_setting("a", rows, about("A"))


def test_a_method_with_the_scores_of_a_plain_one_in_every_seed_is_that_one():
    record = alike(fedobp=[0.6, 0.7, 0.8], fedmosaic=[0.5, 0.6, 0.7], fedper=[0.6, 0.7, 0.8 + 1e-9], cfl=[0.6, 0.7])
    field = Field(record)
    names = ("fedobp", "fedmosaic", "fedper", "cfl", "fedavg", "local")
    assert [field.same_as("a", name) for name in names] == ["fedavg", "local", "", "", "", ""]
    fitted = (record.numbers["method"] == "fedobp") & (record.numbers["point"] == "after_fit")
    numbers = record.numbers.assign(value=record.numbers["value"].mask(fitted & (record.numbers["seed"] == 1), 0.9))
    assert Field(FieldRecord(numbers, record.about)).same_as("a", "fedobp") == "", "only after aggregation"


def test_fedobp_is_fedavg_in_two_settings_of_the_shipped_record():
    field = Field(FieldRecord.read(RECORDED))
    assert {name for name in field.settings if field.same_as(name, "fedobp")} == {"two-scanners", "natural-groups"}


def test_methods_that_were_not_at_work_do_not_compete():
    rows = rows_of("a", {"local": [0.5], "fedper": [0.9], "ditto": [0.6]}, {}, ["ditto"])
    field = Field(FieldRecord().with_setting("a", rows, about("A", degenerate=["fedper"])))
    assert [one.method for one in field.rivals("a")] == ["ditto", "local"]
    assert field.best_of("a", "personal").method == "ditto"
    assert [one.method for one in field.possible_best("a")] == ["ditto"]


def test_costs_are_of_methods_that_run_in_every_setting(field):
    points = field.costs_and_gains(["clothes", "lungs"])
    assert set(points) == {"fedavg", "fedavg-ft", "fedper"}
    assert points["fedper"] == pytest.approx((0.9, 0.06))


def test_the_best_of_a_kind_is_by_its_gain(field):
    assert field.best_of("clothes", "shared").method == "fedavg"
    assert field.best_of("clothes", "personal").method == "fedper"


def test_the_pooled_model_does_not_compete():
    rows = rows_of("a", {"local": [0.5], "centralized": [0.9]}, {"centralized": UP})
    field = Field(FieldRecord().with_setting("a", rows, about("A")))
    assert [one.method for one in field.rivals("a")] == ["local"]
    assert "centralized" not in field.competing
    assert [one.method for one in field.in_setting("a")] == ["centralized", "local"]


def test_settings_stand_by_kind_and_title_in_whatever_order_they_were_recorded():
    record, kinds = FieldRecord(), {"b": ("labels", "Z"), "a": ("labels", "Y"), "c": ("amounts", "X")}
    for name, (kind, title) in kinds.items():
        record = record.with_setting(name, rows_of(name, {"local": [0.5]}, {}), about(title, kind=kind))
    assert Field(record).settings == ["c", "a", "b"]


def test_methods_are_in_families():
    assert (family_of("fedavg"), kind_of("fedavg")) == ("global", "shared")
    assert kind_of("fedavg-ft") == "personal"
    assert kind_of("local") == "baseline"
    assert (family_of("mine:Mine"), kind_of("mine:Mine")) == ("own", "personal")
    assert family_of("fedcac tau=0.5") == family_of("fedcac")


def test_numbers_by_seed_are_those_of_their_point(field):
    assert field.by_seed("clothes", "local", "score", "after_agg") == {0: 0.7, 1: 0.72}
    assert field.number("clothes", "local", "seconds") == 1.0
    assert field.number("clothes", "local", "score", "after_fit") is None
