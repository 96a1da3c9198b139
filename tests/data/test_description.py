"""Decisions of readers, and the lines that say what was read."""

from dataclasses import replace

import pytest

from fedbench.data.description import (
    ClientSizes,
    Decision,
    Description,
    Parts,
    Samples,
    TargetForm,
    first_names,
)
from fedbench.errors import open_decision

ROWS = Samples("feature", (3,), "float32", ("age", "bmi", "ward"), "", 1, (50.0, 25.0, 0.0), (20.0, 3.0, 1.0))
DIED = Decision("targets", "column died is the target", "certain", "data.label", "died")
READ = Description(
    "csv:a.csv",
    False,
    Parts(240, 0, 0, True, (173, 19, 48), "stratified"),
    ROWS,
    TargetForm("classification", 2, "class", ("no", "yes"), (116, 124)),
    ClientSizes("in the data (Basel, Bern, Chur)", 3, 71, 76, 93),
    1,
    (DIED,),
)


def test_a_decision_is_the_same_after_json():
    decision = Decision("targets", "column died is the target", "given", "data.label", "died")
    assert Decision.from_json(decision.as_json()) == decision


def test_an_open_decision_names_both_readings_and_the_key_of_each():
    error = open_decision("data csv:a.csv", "y stands beside x", {"--data.label y": "a target", "--data.label z": "no"})
    assert str(error) == "data csv:a.csv: y stands beside x: a target (--data.label y) or no (--data.label z)?"


def test_a_block_says_what_is_trained_on():
    assert READ.block == [
        "data:     csv:a.csv",
        "parts:    240 in one part; clients train on 173, validate on 19, are tested on 48 (partition.test stratified)",
        "samples:  rows of 3 features, float32: age, bmi, ward; standardised per column; left as they are: ward",
        "targets:  task classification, 2 classes: no (116), yes (124); column died is the target",
        "clients:  3 in the data (Basel, Bern, Chur): 71 to 93 samples, median 76",
    ]


def test_a_block_has_at_most_six_lines_and_counts_what_it_leaves_out():
    subjects = ("parts", "samples", "files", "clients")
    many = tuple(Decision(about, f"{about} {n}") for about in subjects for n in range(5))
    block = replace(READ, files=7, decisions=many).block
    assert len(block) == 6
    assert block[-1] == "files:    7 files; files 0; files 1; files 2; 2 more decisions"


def test_a_block_does_not_repeat_what_its_lines_show():
    shown = tuple(Decision("samples", "x", "certain", key, 1) for key in ("data.kind", "data.channels", "data.task"))
    assert replace(READ, decisions=(DIED, *shown)).block == READ.block
    assert ("certain", "x (data.kind: 1)") in replace(READ, decisions=shown).rows


def test_all_of_it_names_every_decision_with_its_key_and_how_it_was_made():
    given = replace(DIED, how="given", key="data.drop", value=["a", "b"], said="columns a, b are left out")
    rows = replace(READ, decisions=(DIED, given)).rows
    assert ("certain", "column died is the target (data.label: died)") in rows
    assert ("given", "columns a, b are left out (data.drop: a, b)") in rows
    assert ("constants", "50.0000 ± 20.0000, 25.0000 ± 3.0000, 0.0000 ± 1.0000") in rows
    assert str(READ).splitlines()[0] == repr(READ).splitlines()[0] == "data       csv:a.csv"


def test_a_set_known_by_name_takes_a_line_unless_a_key_reads_it_otherwise():
    known = replace(READ, known=True)
    assert known.block == [
        "data: csv:a.csv, 240 in one part; clients train on 173, validate on 19, are tested on 48 "
        "(partition.test stratified); rows of 3 features, float32: age, bmi, ward; classification; "
        "clients: 3 in the data (Basel, Bern, Chur): 71 to 93 samples, median 76"
    ]
    assert len(replace(known, decisions=(replace(DIED, how="given"),)).block) == 5


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (
            Samples("image", (3, 20, 30), "uint8", unit=255, mean=(0.5, 0.25, 0.125), std=(0.5, 1.0, 2.0)),
            "colour images, 20 high and 30 wide, uint8; divided by 255, then standardised per channel "
            "(mean 0.5, 0.25, 0.125; deviation 0.5, 1, 2)",
        ),
        (Samples("token", (20,), "int64"), "tokens (whole numbers) [20]; left as they are"),
        (
            Samples("feature", (128, 6), "float32", mean=(1.0,) * 128, std=(2.0,) * 128),
            "features [128, 6], float32: 128 channels of 6 numbers, the first dimension; standardised per channel",
        ),
        (
            Samples("feature", (128, 6), "float32", mean=(1.0,) * 6, std=(2.0,) * 6, channels="last"),
            "features [128, 6], float32: 6 channels of 128 numbers, the last dimension; standardised per channel",
        ),
        (
            Samples("feature", (28, 28), "float32", mean=(1.0,), std=(2.0,)),
            "features [28, 28], float32; standardised by one mean and deviation",
        ),
        (
            Samples("fields", (7,), "float64", fields="ids [5], mask [2]"),
            "samples of several arrays: ids [5], mask [2]; left as they are",
        ),
        (Samples("feature", (2,), "float32", mean=(0.0, 0.0), std=(1.0, 1.0)), "rows of 2 features, float32; left as"),
    ],
)
def test_samples_are_described_by_form_and_scale(samples, said):
    assert str(samples).startswith(said)


def test_parts_count_validation_by_itself():
    assert str(Parts(60, 20, 20, False)) == "60 train, 20 validation, 20 test"
    assert str(Parts(100, 0, 0, True)) == "100 in one part, of which a partition holds some out"


def test_targets_show_what_does_not_count_and_the_range_of_numbers():
    masks = TargetForm("segmentation", 2, "class at each position", ("0", "1"), (90, 8), void=((255, 2),))
    assert str(masks) == (
        "task segmentation, 2 classes at each position: 0 (90), 1 (8); values that do not count: 255 (2)"
    )
    assert str(TargetForm("regression", 1, "number", low=-3.5, high=2)) == "task regression, 1 number, from -3.5 to 2"


def test_equal_clients_are_said_to_be_equal():
    assert str(ClientSizes("by partition iid", 4, 60, 60, 60)) == "4 by partition iid: 60 samples each"


def test_long_lists_are_cut():
    assert first_names([*"abcdef"]) == "a, b, c, d, e, f"
    assert first_names([*"abcdefgh"]) == "a, b, c, d, e, f, and 2 more"
