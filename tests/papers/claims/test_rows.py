"""Rows are data that mean something: every row, arm, setting and word of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedbench.config import Config
from fedbench.engine.fit import AMOUNT
from fedbench.errors import ConfigError
from fedbench.methods import load
from fedbench.methods.cotraining import LEARNT
from fedbench.studies.cost import Cost, steps_of
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.judge import READINGS
from fedbench_papers.claims.properties import PROPERTIES
from fedbench_papers.claims.rows import (
    DATA,
    SETTINGS,
    Row,
    load_file,
    load_rows,
    new_runs,
    readings_in,
    row_of,
    select_rows,
)
from fedbench_papers.image_sources import read_sources

ROWS = load_rows()
COLLAPSED = ("M2", "M3", "M4", "M6", "M7", "M8")
"""Rows that were first judged with votes from round 1 on."""
LISTS = ("mean", "best", "rank_correlation")
"""Words of terms that stand before a list of terms, not before a reading."""
NAMES = ("ours", "theirs")
"""Keys of a check whose mappings have labels as keys."""


def labels_in(term: Any) -> Iterator[str]:
    """The labels that a term or the values of a check name."""
    if isinstance(term, str):
        yield term
    elif isinstance(term, list):
        for own in term:
            yield from labels_in(own)
    else:
        ((word, inside),) = term.items()
        yield from labels_in(inside if word in LISTS else inside["of"])


def names_in(part: dict[str, Any]) -> Iterator[str]:
    for key in ("of", "low", "middle", "high", "label", "large", "second"):
        yield from labels_in(part[key]) if key in part else ()
    yield from labels_in(part["first"]) if "first" in part else ()
    for key in ("options", "others", "order", "labels", "among", "small"):
        for own in part.get(key, ()):
            yield from labels_in(own)
    for key in NAMES:
        yield from part.get(key, ())


def known(row: Row) -> set[str]:
    return {a.label for a in row.arms} | {f"{name} {a.label}" for name in row.uses for a in ROWS[name].arms}


def test_there_are_40_rows_that_count():
    counted = [name for name, row in ROWS.items() if not row.reading_of]
    counts = {letter: sum(name.startswith(letter) for name in counted) for letter in "COFMXP"}
    assert counts == {"C": 5, "O": 6, "F": 11, "M": 10, "X": 4, "P": 4}


def test_readings_are_rows_after_their_own():
    names = list(ROWS)
    readings = {name: row for name, row in ROWS.items() if row.reading_of and not row.combination}
    assert [row.reading_of for row in readings.values()] == [*(f"C{n}" for n in range(1, 6)), *COLLAPSED]
    for name, row in readings.items():
        counted = ROWS[row.reading_of]
        assert name == f"{counted.id}-{row.reading}"
        assert names.index(name) == names.index(counted.id) + 1
        for key in ("statement", "where", "effect", "setting", "seeds", "parts", "uses"):
            assert getattr(row, key) == getattr(counted, key)
        assert [arm.label for arm in row.arms] == [arm.label for arm in counted.arms]
        assert set(counted.open) <= set(row.open)


def test_the_keys_of_a_reading_go_to_the_arms_of_its_methods():
    for name, row in ROWS.items():
        for arm in row.arms:
            literal = row.reading == "literal" and arm.name == "co-pfl"
            assert (arm.fixed.get("method.server_rule") == "or_mask") == literal, name
            if row.reading_of or name in COLLAPSED:
                first = row.reading == "round-1" and arm.name in ("fedmosaic", "fedct")
                assert arm.fixed.get("method.first_vote") == (1 if first else None), name
    rounds = {name: {arm.fixed["rounds"] for arm in ROWS[name].arms} for name in ("M3", "M3-round-1", "M4-round-1")}
    assert rounds == {"M3": {42}, "M3-round-1": {18}, "M4-round-1": {15}}, "of all arms"


def test_rows_that_count_leave_rounds_after_the_first_vote():
    """By the rule of co-training: 80 gradient steps of local training come first."""
    for name, images in (("M3", 200), ("M4", 80), ("M8", 200)):
        config = first(name)
        steps = AMOUNT.steps_on(images, config.train)
        assert config.rounds >= 2 * -(-LEARNT // steps), name


def test_other_readings_are_asked_for():
    assert [row.id for row in select_rows(ROWS, ["C1", "M1"])] == ["C1", "M1"]
    assert [row.id for row in select_rows(ROWS, ["C1-literal", "C1", "M1"], "all")] == ["C1-literal", "C1", "M1"]
    assert len(select_rows(ROWS, ["all"], "all")) == len(ROWS) == 40 + 11 + 10
    with pytest.raises(ConfigError, match="--readings literal: must be all; a single reading is a row"):
        select_rows(ROWS, ["C1"], "literal")


def test_what_all_arms_of_a_reading_take_comes_before_what_a_method_takes():
    arms = {"ours": {"method": "fedper", "rounds": 4}, "theirs": {"method": "local"}}
    tree = {**dict.fromkeys(("statement", "where", "effect"), "x"), "setting": "MC", "seeds": [0], "arms": arms}
    tree |= {"parts": {}, "readings": {"short": {"all": {"rounds": 2}, "local": {"rounds": 3}, "open": ["why"]}}}
    placed = {name: {} for name in DATA}
    found = [row_of("A1", tree, placed, {}, Conditions(), reading) for reading in ("", "short")]
    assert [[arm.fixed["rounds"] for arm in row.arms] for row in found] == [[4, 25], [2, 3]]
    assert [(row.id, row.open) for row in found] == [("A1", ()), ("A1-short", ("why",))]
    assert found[1].arm_keys["theirs"] == {"method": "local", "rounds": 3}, "as the page says it"


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_arm_is_a_configuration(row):
    for arm in row.arms:
        load(arm.name)
        for values in arm.points:
            asked = arm.config(Config(), {**values, **arm.trial})
            assert asked.data.name in DATA.values()
    labels = [arm.label for arm in row.arms]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_word_of_a_part_is_known(row):
    assert row.parts
    for part in row.parts.values():
        for case in part.get("cases", {"": {}}).values():
            own = {**part, **case}
            assert set(names_in(own)) <= known(row)
            assert own["rule"] in ("B", "T", "N", "S", "M", "K", "P", "shown")
            assert (own["rule"] == "P") == ("check" in own)
            assert own.get("check", "little_trust") in PROPERTIES
            assert own["rule"] in ("P", "K", "shown") or own["delta"] > 0
            assert words_of(own.get("of", [])) <= {*READINGS, *LISTS}


def words_of(term: Any) -> set[str]:
    if isinstance(term, dict):
        ((word, inside),) = term.items()
        return {word} | (words_of(inside) if isinstance(inside, list) else set())
    return set() if isinstance(term, str) else set().union(*map(words_of, term))


def test_arms_take_setting_then_method_then_their_own():
    row = ROWS["C3"]
    none = next(arm for arm in row.arms if arm.label == "none")
    assert none.fixed["train.lr"] == 0.01
    assert none.fixed["train.epochs"] == 1, "co-pfl's of the setting"
    assert none.fixed["evaluate.every"] == 1, "of all arms of the row"
    assert none.fixed["partition.images"] == 50
    assert none.seeds == (10, 11, 12), "its own"


def test_a_tuned_arm_is_tried_on_a_fifth_held_out_in_a_third_of_the_rounds():
    arm = ROWS["C5"].arms[0]
    assert arm.points == ({"train.lr": 1e-4}, {"train.lr": 3e-4})
    assert arm.trial == {"data.val": 0.2, "rounds": 10}
    assert arm.config(Config(), arm.points[0]).data.val == 0


def test_the_choosing_seed_is_one_more():
    assert ROWS["F10"].arms[0].seeds == (0, 1, 2, 3, 4, 90)


def test_conditions_change_rounds_seeds_and_images_of_every_arm():
    rows = load_rows(conditions=Conditions(scale=0.5, rounds=6, seeds=(0, 1)))
    tuned = rows["C5"].arms[0]
    assert (tuned.fixed["rounds"], tuned.trial["rounds"], tuned.seeds) == (6, 2, (0, 1))
    assert tuned.fixed["partition.images"] == 25
    assert rows["O4"].arms[3].seeds == (0, 1), "an arm's own seed, too"
    assert rows["F10"].arms[0].seeds == (0, 1, 90)
    assert [rows["O1"].arms[0].fixed[f"partition.{key}"] for key in ("total", "min_images")] == [5000, 20]
    assert rows["F8"].arms[0].fixed["partition.counts"] == [[80, 0, 0, 20, 0, 20, 0, 0, 0, 80]]
    least = load_rows(conditions=Conditions(scale=0.001))
    assert least["F8"].arms[0].fixed["partition.counts"] == [[1, 0, 0, 1, 0, 1, 0, 0, 0, 1]]
    assert least["C1"].seeds == (0, 1, 2)


def test_conditions_have_folders_of_their_own():
    asked = Conditions(), Conditions(2.0), Conditions(rounds=5), Conditions(seeds=(0, 1, 2))
    assert [own.folder for own in asked] == ["claims", "claims-scale-2", "claims-rounds-5", "claims-seeds-0-1-2"]
    assert Conditions(0.25, 5, (0, 1)).flags == " --scale 0.25 --rounds 5 --seeds 0 1"


def test_rows_share_runs_by_saying_the_same():
    first, second = (ROWS[name].arms for name in ("O1", "O2"))
    assert first[5].config(Config()).key() == second[5].config(Config()).key()


def test_where_sets_are(tmp_path):
    (tmp_path / "fmnist").mkdir()
    (tmp_path / "cifar10_jpeg").mkdir()
    (tmp_path / "cifar10_jpeg" / "train.parquet").touch()
    rows = load_rows(read_sources([str(tmp_path)], list(DATA)))
    assert rows["M6"].arms[0].fixed["data.root"] == f"{tmp_path}/fmnist"
    assert rows["F1"].arms[0].fixed["data.name"] == f"parquet:{tmp_path}/cifar10_jpeg"
    assert ROWS["F1"].arms[0].fixed["data.name"] == "cifar10"


def test_mistakes_are_told(tmp_path):
    with pytest.raises(ConfigError, match="--only C9: unknown row; did you mean"):
        select_rows(ROWS, ["C9"])
    assert len(select_rows(ROWS, ["all"])) == 40
    assert [row.id for row in select_rows(ROWS, ["M9", "C1", "M9"])] == ["M9", "C1"]


def test_every_setting_is_used_and_said():
    used = {row.setting for row in ROWS.values()} | {"CF", "MCP"}
    assert used == set(load_file(SETTINGS))
    assert all(place["text"].strip() for place in load_file(SETTINGS).values())


def first(row: str) -> Config:
    arm = ROWS[row].arms[0]
    return arm.config(Config(), arm.points[0])


@pytest.mark.parametrize(
    ("row", "images", "steps"),
    [
        ("F4", 60, 50 * 20 * 3 * 2),
        ("O1", 375, 60 * 5 * 2 * 12),  # 12 batches of 32 for 375 images
        ("C4", 20, 20 * 10 * 1 * 1 * 2),  # two phases
        ("M6", 100, 60 * 15 * 2 * 2),  # a batch of public images in the same step
        ("F8", 400, 5 * 8),
    ],
)
def test_steps(row, images, steps):
    assert Cost.of(first(row)).images == images
    assert steps_of(first(row)) == steps


def test_a_tuned_row_also_runs_its_points():
    runs = list(ROWS["C5"].runs())
    assert len(runs) == 7 * (2 + 8)
    assert {config.rounds for config, seed in runs if seed == 90} == {10}


def test_shared_runs_count_once():
    known: set = set()
    counts = [len(new_runs(ROWS[name], known)) for name in ("F4", "F5", "F4", "X2")]
    assert counts == [5 * 8, 5 * 8 - 8, 0, 0]


def test_every_combination_of_what_the_paper_leaves_open_is_a_reading():
    """The first one is the row that counts."""
    tree = {"combinations": {"fedcac": {"method.ties": ["exact", "threshold"], "method.overlap": ["critical", "all"]}}}

    found = readings_in(tree)

    assert [*found] == ["ties=exact+overlap=all", "ties=threshold+overlap=critical", "ties=threshold+overlap=all"]
    assert found["ties=threshold+overlap=all"]["fedcac"] == {"method.ties": "threshold", "method.overlap": "all"}


def test_combinations_change_the_arms_of_their_method_alone():
    rows = load_rows()
    row = rows["M6-lambda_update=step"]

    assert row.combination == {"lambda_update": "step"}
    assert rows["M6"].combination == {"lambda_update": "round"}
    assert row.reading_of == "M6"
    changed = {label: keys.get("method.lambda_update") for label, keys in row.arm_keys.items()}
    methods = {label: keys["method"] for label, keys in row.arm_keys.items()}
    assert all((value == "step") == (methods[label] == "fedmosaic") for label, value in changed.items())
