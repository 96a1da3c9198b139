"""The guide names what to try, and its evidence."""

from fedbench_papers.field.guide import advice, guide
from fedbench_papers.field.record import FieldRecord
from fedbench_papers.field.standings import Field
from tests.papers.field.made import OPEN, UP, about, made_record, rows_of


def test_a_fine_tuned_shared_model_comes_first_where_nothing_is_told_apart_from_it():
    one = advice(Field(made_record()), "clothes")
    assert (one.first, one.gain) == ("fedavg-ft", "+5.0 (+3.0 to +7.0) points over local training")
    assert one.why == (
        "2 of 4 methods may be the best, and 2 of these are better than local training; fedavg-ft costs the least of "
        "them. Not told apart from it as the best: fedper."
    )


def test_local_training_comes_first_where_nothing_is_told():
    one = advice(Field(made_record()), "lungs")
    assert one.first == "local"
    assert one.why == "4 of 4 methods may be the best; none of these is told to be better than local training."


def test_the_cheapest_of_the_best_comes_first_where_fine_tuning_is_behind():
    scores = {"local": [0.5], "fedavg-ft": [0.6], "fedper": [0.7], "ditto": [0.71]}
    gains = {"fedavg-ft": UP, "fedper": UP, "ditto": UP}
    rows = rows_of(
        "a", scores, gains, ["fedper", "ditto"], seconds={"local": 1, "fedavg-ft": 1, "fedper": 2, "ditto": 5}
    )
    assert advice(Field(FieldRecord().with_setting("a", rows, about("A"))), "a").first == "fedper"


def test_better_methods_that_are_not_the_best_are_counted():
    rows = rows_of(
        "a", {"local": [0.5], "fedavg-ft": [0.6], "fedper": [0.9]}, {"fedavg-ft": UP, "fedper": OPEN}, ["fedper"]
    )
    one = advice(Field(FieldRecord().with_setting("a", rows, about("A"))), "a")
    assert one.first == "local"
    assert one.why.endswith("none of these is told to be better than local training, 1 others are.")


def test_every_setting_has_a_line():
    assert [one.like for one in guide(Field(made_record()))] == ["Clothes of yours", "Lungs of yours"]
