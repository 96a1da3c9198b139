"""model.json says what a model takes and how it is built."""

import json

import numpy as np
import pytest
from torch import nn

from fedbench.data.fields import Fields, Leaf
from fedbench.jobs.resolve import resolve
from fedbench.runtime.build import build_learner
from fedbench.runtime.kept.model_folder import about_model, is_nested, raw_columns, write_adapters, write_beside
from tests.runtime.rounds import small

LEAF = Leaf((3,), "int64", 0)


def about(method="fedavg", **more):
    run = resolve(small(method, **more))
    return about_model(run, build_learner(run, 0))


def test_of_a_built_in_model():
    found = about()
    assert (found["shape"], found["unit"], found["dtype"]) == ([1, 8, 8], 255, "uint8")
    assert (found["task"], found["double"], found["plain"]) == ("classification", False, True)
    assert found["imports"] == ["from fedbench.models.mlp import Mlp"]
    assert found["build"] == "Mlp(input_shape=(1, 8, 8), classes=10, hidden=16)"
    assert json.loads(json.dumps(found)) == found


def test_of_a_table_it_names_the_columns_in_their_order(tmp_path):
    rows = [f"{age},{colour},{age % 2}" for age in range(60) for colour in ("red", "blue")]
    (tmp_path / "t.csv").write_text("\n".join(["age,colour,label", *rows]))
    found = about(data=f"csv:{tmp_path / 't.csv'}", model="mlp", partition={"clients": 3})
    assert found["columns"] == [
        {"name": "age", "kind": "number", "features": ["age"]},
        {
            "name": "colour",
            "kind": "category",
            "features": ["colour=blue", "colour=red"],
            "categories": ["blue", "red"],
        },
    ]
    assert found["shape"] == [3]
    assert found["classes"] == ["0", "1"]
    assert "columns" not in about()


def test_a_number_that_may_be_missing_has_what_fills_it(tmp_path):
    """The mean of the numbers 0, 1, ..., 59 without 0, 30; or the median of a client, which stands behind job."""
    rows = [f"{age % 2 and 'cook'},{'' if age in (0, 30) else age},{age % 2}" for age in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["job,age,label", *rows]))
    run = resolve(small(data={"name": f"csv:{tmp_path / 't.csv'}", "impute": "median"}, partition={"clients": 3}))
    dataset = run.dataset.with_constants([29.5] * len(run.dataset.mean), [])
    assert [column.get("fill") for column in raw_columns(dataset)] == [None, 29.5]
    medians = np.arange(len(dataset.columns), dtype=np.float32)
    assert [column.get("fill") for column in raw_columns(dataset, medians)] == [None, 2.0]
    assert [column.get("lacks_some") for column in raw_columns(dataset)] == [None, True]


def test_why_it_cannot_be_built_again():
    assert about("fedrod")["no_script"] == "fedrod adds layers to it"
    assert "build" not in about("fedrod")
    assert "no_script" not in about("moon"), "which adds some only if it is asked for"


@pytest.mark.parametrize(
    ("sample", "nested"),
    [(None, False), ({"a": LEAF, "b": LEAF}, False), ((LEAF, LEAF), False), ({"a": {"b": LEAF}}, True)],
)
def test_samples_in_samples_are_nested(sample, nested):
    assert is_nested(Fields(sample)) is nested
    assert not is_nested(None)


def test_the_description_ends_a_folder(tmp_path):
    write_beside(tmp_path, {"shape": [2]}, None)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    write_beside(tmp_path, {"shape": [2]}, "print(1)")
    assert (tmp_path / "predict.py").read_text() == "print(1)"


def test_a_module_without_adapters_has_none(tmp_path):
    write_adapters(tmp_path, "adapter", nn.Linear(2, 2), {})
    assert not list(tmp_path.iterdir())
