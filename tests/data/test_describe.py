"""What is said of data is what was put in."""

import json

import numpy as np
import pytest

import fedbench
from fedbench.config import Config
from fedbench.config.keys import nest
from fedbench.data.describe import describe, written_keys
from fedbench.data.description import ClientSizes, Decision
from fedbench.errors import ConfigError

RANDOM = np.random.default_rng(0)
FLOATS = RANDOM.normal(size=(60, 4)).astype(np.float32)
CLASSES = np.arange(60) % 3
TABLE = "hospital,age,bmi,died\n" + "".join(
    f"{'Basel' if row < 20 else 'Bern'},{row},{row / 7:.3f},{'yes' if row % 4 == 0 else 'no'}\n" for row in range(60)
)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "a.csv").write_text(TABLE)
    return f"csv:{tmp_path / 'a.csv'}"


def test_it_is_a_public_name():
    found = fedbench.describe((FLOATS, CLASSES))
    assert (found.parts.train, found.samples.shape) == (60, (4,))


def test_a_table_of_hospitals(table):
    keys = {"name": table, "label": "died", "user": "hospital"}
    found = describe(Config(data=keys, partition="natural"))
    assert found.samples.columns == ("age", "bmi")
    assert (found.targets.names, found.targets.counts) == (("no", "yes"), (45, 15))
    assert found.clients == ClientSizes("in the data (Basel, Bern)", 2, 20, 30, 40)
    assert found.parts.one_part
    assert sum(found.parts.dealt) == 60
    assert found.parts.drawn == "stratified"
    assert found.files == 1


def test_the_positives_of_a_binary_task_are_counted(table):
    found = describe(Config(data={"name": table, "label": "died", "user": "hospital", "task": "binary"}))
    assert (found.targets.names, found.targets.counts) == (("no", "yes"), (45, 15))
    assert str(found.targets) == "task binary, 2 classes: no (45), yes (15)"


def test_clients_that_are_not_those_of_the_data_are_named(table):
    keys = {"name": table, "label": "died", "user": "hospital"}
    found = describe(Config(data=keys, partition={"name": "iid", "clients": 4}))
    said = "by partition iid, not the 2 in the data (Basel, Bern), which --partition natural takes"
    assert found.clients.source == said
    assert (found.clients.count, found.clients.smallest, found.clients.largest) == (4, 15, 15)


def test_a_partition_that_nobody_asked_for_is_not_dealt(table):
    found = describe(Config(data={"name": table, "label": "died", "user": "hospital"}))
    assert found.parts.dealt is None
    assert str(found.clients) == "2 in the data (Basel, Bern), for --partition natural: 20 to 40 samples, median 30"
    assert not describe((FLOATS, CLASSES)).clients.count


def test_a_validation_part_is_counted_by_itself():
    cuts = {"train": slice(0, 36), "val": slice(36, 48), "test": slice(48, 60)}
    parts = {name: (FLOATS[rows], CLASSES[rows]) for name, rows in cuts.items()}
    found = describe(parts).parts
    assert (found.train, found.val, found.test, found.one_part) == (36, 12, 12, False)


def test_targets_of_every_kind():
    labels = np.stack([CLASSES == 0, CLASSES != 1, np.ones(60, bool)], axis=1).astype(int)
    found = describe((FLOATS, labels)).targets
    assert (found.task, found.noun, found.counts) == ("multilabel", "label", (20, 40, 60))
    found = describe((FLOATS, np.linspace(-1, 2, 60))).targets
    assert (found.task, found.low, found.high, found.counts) == ("regression", -1, 2, ())
    masks = np.zeros((60, 4, 4), np.int64)
    masks[:, 0], masks[:, 1, 0] = 1, 255
    pictures = np.zeros((60, 4, 4), np.uint8)
    found = describe({"name": (pictures, masks), "task": "segmentation"}).targets
    assert (found.counts, found.void) == ((60 * 11, 60 * 4), ((255, 60),))


def test_scale_shift_and_what_stays_as_it_is():
    samples = np.concatenate([FLOATS, (np.arange(60) % 5)[:, None].astype(np.float32)], axis=1)
    found = describe((samples, CLASSES)).samples
    assert found.kept == ("column 4",)
    np.testing.assert_allclose(found.mean[:4], FLOATS.mean(0), atol=1e-6)
    assert describe((np.arange(240).reshape(60, 4), CLASSES)).samples.scale == "left as they are"


def test_what_a_key_says_is_given_and_the_task_is_certain(table):
    found = describe(Config(data={"name": table, "label": "died", "drop": ["bmi"]}))
    how = {decision.key: (decision.how, decision.value) for decision in found.decisions}
    assert how["data.label"] == ("given", "died")
    assert how["data.drop"] == ("given", ["bmi"])
    assert how["data.task"] == ("certain", "classification")


def test_a_set_known_by_name_is_one_line_unless_keys_read_it_otherwise():
    assert len(describe("digits").block) == 1
    assert not describe("digits").decisions
    changed = describe({"name": "digits", "mean": [0.5]})
    assert len(changed.block) > 1
    assert changed.decisions == (Decision("samples", "mean set to 0.5", "given", "data.mean", [0.5]),)


def test_keys_that_are_written_read_the_same(table):
    asked = Config(data={"name": table, "label": "died", "user": "hospital"})
    first = describe(asked)
    again = describe(Config(**nest(written_keys(first, asked))))
    assert [(own.key, own.value, own.said) for own in again.decisions] == [
        (own.key, own.value, own.said) for own in first.decisions
    ]
    assert {own.how for own in again.decisions if own.key} == {"given"}
    assert (again.parts, again.samples, again.targets, again.clients) == (
        first.parts,
        first.samples,
        first.targets,
        first.clients,
    )


def test_it_can_be_kept_as_json():
    found = describe((FLOATS, CLASSES))
    kept = json.loads(json.dumps(found.as_json()))
    assert kept["parts"]["train"] == 60
    assert kept["rows"] == [list(row) for row in found.rows]


def test_data_that_cannot_be_read_are_refused():
    with pytest.raises(ConfigError, match="unknown data set"):
        describe("cifr10")


def test_what_should_be_known_of_the_data_and_their_partition_stands_below_the_decisions():
    samples, labels = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2 + 1
    parts = {"data": (samples[:30], labels[:30], samples[30:], labels[30:])}
    assert str(describe(Config(**parts))).endswith("note       labels 1, 2 are classes 0 to 1")
    dealt = describe(Config(**parts, partition={"clients": 2, "min_images": 2}))
    assert dealt.notes[1].startswith("the data's own test part (10 samples) is merged with the training part")
