"""The guide names what to try, and its evidence."""

from fedbench_papers.field.guide import advice, guide
from fedbench_papers.field.record import FieldRecord
from fedbench_papers.field.standings import Field
from tests.papers.field.made import OPEN, UP, about, made_record, rows_of


def test_a_fine_tuned_shared_model_comes_first_where_nothing_is_told_apart_from_it():
    one = advice(Field(made_record()), "clothes")
    assert (one.first, one.gain) == ("fedavg-ft", "+5.0 (+3.0 to +7.0) points over local training")
    assert one.why == (
        "2 of 4 methods may be the best, and 2 were shown to be better than local training, 2 of both kinds. fedavg-ft "
        "is the simplest of them. Not told apart from it: fedper."
    )


def test_local_training_comes_first_where_nothing_is_shown():
    one = advice(Field(made_record()), "lungs")
    assert (one.first, one.gain) == ("local", "no gain was shown")
    assert one.why == "4 of 4 methods may be the best, and none was shown to be better than local training."


def test_the_cheapest_of_the_best_comes_first_where_fine_tuning_is_behind():
    scores = {"local": [0.5], "fedavg-ft": [0.6], "fedper": [0.7], "ditto": [0.71]}
    gains, seconds = {"fedavg-ft": UP, "fedper": UP, "ditto": UP}, {"local": 1, "fedavg-ft": 1, "fedper": 2, "ditto": 5}
    rows = rows_of("a", scores, gains, ["fedper", "ditto"], seconds=seconds)
    one = advice(Field(FieldRecord().with_setting("a", rows, about("A"))), "a")
    assert one.first == "fedper"
    assert "fedper takes the least processor time of them." in one.why


def test_one_model_for_all_comes_first_where_it_is_as_good():
    scores = {"local": [0.5], "fedavg": [0.7], "fedavg-ft": [0.7], "fedper": [0.7]}
    gains, seconds = dict.fromkeys(("fedavg", "fedavg-ft", "fedper"), UP), {"fedavg": 3, "fedavg-ft": 2, "fedper": 1}
    rows = rows_of("a", scores, gains, [*gains], seconds=seconds)
    one = advice(Field(FieldRecord().with_setting("a", rows, about("A"))), "a")
    assert one.first == "fedavg"
    assert "fedavg is the simplest of them. Not told apart from it:" in one.why


def test_a_method_that_was_shown_to_be_better_comes_before_a_possible_best_that_was_not():
    scores, gains = {"local": [0.5], "fedavg-ft": [0.6], "fedper": [0.9]}, {"fedavg-ft": UP, "fedper": OPEN}
    rows = rows_of("a", scores, gains, ["fedper"])
    one = advice(Field(FieldRecord().with_setting("a", rows, about("A"))), "a")
    assert one.first == "fedavg-ft"
    assert one.why.startswith(
        "1 of 3 methods may be the best, and 1 was shown to be better than local training, 0 of both"
    )
    assert one.why.endswith("Others may be better still, but were not shown to be better than local training.")


def test_every_setting_has_a_line():
    assert [one.like for one in guide(Field(made_record()))] == ["Clothes of yours", "Lungs of yours"]
