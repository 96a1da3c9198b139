"""The scripts beside weights and programs: what they import, read and print."""

import json
import runpy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedbench.engine.losses import outputs_of
from fedbench.runtime.kept.predict_script import from_onnx, from_program, from_run, from_weights

ABOUT = {
    "shape": [3],
    "unit": 1,
    "mean": [1.0, 2.0, 3.0],
    "std": [2.0, 2.0, 2.0],
    "classes": ["no", "yes"],
    "dtype": "float32",
    "task": "classification",
    "double": False,
    "plain": True,
    "imports": ["from torch.nn import Linear"],
    "build": "Linear(3, 2)",
    "calls": [],
}
PACKED = {"shape": [5], "mean": [], "std": [], "fields": {"sample": {"dict": {"a": {}, "b": {}}}}, "call": "keywords"}
WEIGHTS = {"weight": torch.tensor([[1.0, 0, 0], [0, 1, 0]]), "bias": torch.zeros(2)}


def printed(text, folder, samples, monkeypatch, capsys, words=(), **more):
    """What a script prints about samples, or the text of a CSV. words: further ones of the command line."""
    (folder / "predict.py").write_text(text)
    (folder / "model.json").write_text(json.dumps(ABOUT | more))
    if isinstance(samples, str):
        path = folder / "rows.csv"
        path.write_text(samples, encoding="utf-8")
    else:
        path = folder / ("x.npz" if isinstance(samples, dict) else "x.npy")
        np.savez(path, **samples) if isinstance(samples, dict) else np.save(path, samples)
    monkeypatch.setattr(sys, "argv", ["predict.py", str(path), *words])
    runpy.run_path(str(folder / "predict.py"))
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("task", "said"), [("classification", ["no", "yes"]), ("regression", ["[[1.0,", "0.0],", "[0.0,", "1.0]]"])]
)
def test_normalised_samples_give_classes_or_numbers(task, said, tmp_path, monkeypatch, capsys):
    """(3 - 1) / 2 is 1 and (2 - 2) / 2 is 0: the first class; and the second, where they are 1 and 4."""
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    x = np.array([[3, 2, 9], [1, 4, 9]], np.float32)
    text = from_weights(ABOUT | {"task": task}, "model.safetensors")
    assert printed(text, tmp_path, x, monkeypatch, capsys) == said
    assert len(text.partition("\nhere = ")[2].strip().splitlines()) <= 26


def test_probabilities_stand_beside_the_class_and_a_threshold_moves_it(tmp_path, monkeypatch, capsys):
    """Scores 1 and 0 are e / (e + 1) = 0.731059 of the first class."""
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    x, text = np.array([[3, 2, 9], [1, 4, 9]], np.float32), from_weights(ABOUT, "model.safetensors")
    said = printed(text, tmp_path, x, monkeypatch, capsys, ["--probabilities"])
    assert said == ["class", "no", "yes", "no", "0.731059", "0.268941", "yes", "0.268941", "0.731059"]
    for threshold, classes in (("0.2", ["yes", "yes"]), ("0.5", ["no", "yes"]), ("0.8", ["no", "no"])):
        assert printed(text, tmp_path, x, monkeypatch, capsys, ["--threshold", threshold]) == classes
    assert "threshold" not in from_weights(ABOUT | {"classes": ["a", "b", "c"]}, "w")


def test_constants_stand_along_the_last_dimension_where_channels_do(tmp_path, monkeypatch, capsys):
    """Of two channels beside each other, (5 - 1) / 2 and (2 - 2) / 4, the first has the larger sum."""
    more = {"shape": [1, 2], "channels": "last", "mean": [1.0, 2.0], "std": [2.0, 4.0]}
    more |= {"imports": ["from torch import nn"], "build": "nn.Sequential(nn.Flatten(), nn.Linear(2, 2))"}
    save_file({"1.weight": torch.eye(2), "1.bias": torch.zeros(2)}, tmp_path / "model.safetensors")
    text = from_weights(ABOUT | more, "model.safetensors")
    assert printed(text, tmp_path, np.array([[[5, 2]], [[1, 6]]], np.float32), monkeypatch, capsys, **more) == [
        "no",
        "yes",
    ]


@pytest.mark.parametrize(("classes", "said"), [([], ["1", "0", "0"]), (["no", "yes"], ["yes", "no", "no"])])
def test_one_logit_is_the_score_of_the_second_class(classes, said, tmp_path, monkeypatch, capsys):
    """Logits (3 - 1) / 2, 0 and (0 - 1) / 2; of the logit 0 both classes have probability 0.5."""
    save_file({"weight": WEIGHTS["weight"][:1], "bias": torch.zeros(1)}, tmp_path / "model.safetensors")
    about = {"task": "binary", "classes": classes, "build": "Linear(3, 1)"}
    x = np.array([[3, 2, 9], [1, 2, 9], [0, 4, 9]], np.float32)
    text = from_weights(ABOUT | about, "model.safetensors")
    assert printed(text, tmp_path, x, monkeypatch, capsys, **about) == said
    lines = printed(text, tmp_path, x, monkeypatch, capsys, ["--probabilities", "--threshold", "0.3"], **about)
    assert lines[3::3] == [said[0], said[0], said[0]]
    assert lines[5::3] == ["0.731059", "0.500000", "0.377541"]


@pytest.mark.parametrize("samples", [np.ones((2, 3)), np.ones((2, 4), np.float32)], ids=["type", "shape"])
def test_samples_that_are_not_as_in_the_data_are_refused(samples, tmp_path, monkeypatch, capsys):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    with pytest.raises(AssertionError, match=r"SAMPLES are float(32|64) \[2, [34]\]"):
        printed(from_weights(ABOUT, "model.safetensors"), tmp_path, samples, monkeypatch, capsys)


def test_in_a_run_a_point_is_chosen_and_frozen_parameters_lie_above(tmp_path, monkeypatch, capsys):
    own = tmp_path / "client-0"
    own.mkdir()
    save_file({"bias": WEIGHTS["bias"]}, tmp_path / "base.safetensors")
    save_file({"weight": WEIGHTS["weight"]}, own / "after_agg.safetensors")
    text = from_run(ABOUT, "base.safetensors")
    assert printed(text, own, np.array([[1, 4, 9]], np.float32), monkeypatch, capsys) == ["yes"]


def test_arrays_go_in_by_their_names_or_in_their_order():
    named, placed = ABOUT | PACKED, ABOUT | PACKED | {"fields": {"sample": {"tuple": [{}, {}]}}, "call": "arguments"}
    assert "model(**x)" in from_weights(named, "w")
    assert "model(*x)" in from_weights(placed, "w")
    assert "model(x)" in from_program(named, "p")
    assert "x.values()" in from_onnx(named, "p")
    assert "SAMPLES.npz" in from_onnx(placed, "p")


NUMBER = {"name": "a", "kind": "number", "features": ["a", "a missing"], "lacks_some": True, "fill": 4.0}
CATEGORY = {"name": "c", "kind": "category", "features": ["c=x"], "categories": ["x"]}


TABLE = {"columns": [NUMBER, CATEGORY]}


def test_rows_of_a_table_are_read_by_the_columns_of_the_data(tmp_path, monkeypatch, capsys):
    """The scores are (a - 1) / 2, where 4 stands for a missing a, and (1 - 2) / 2 where it is missing, else -1."""
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    text = from_weights(ABOUT | TABLE, "model.safetensors")
    rows = "\ufeffc, a ,other\n\nx,N/A,1\n x ,0,\nx,.5e1\n"
    said = printed(text, tmp_path, rows, monkeypatch, capsys, ["--probabilities"], **TABLE)
    gaps = np.array([(4 - 1) / 2 - (1 - 2) / 2, (0 - 1) / 2 + 1, (5 - 1) / 2 + 1])
    assert said[:3] == ["class", "no", "yes"]
    np.testing.assert_allclose([float(word) for word in said[4::3]], 1 / (1 + np.exp(-gaps)), atol=1e-6)
    for rows, line in (
        ("c,a\nx,1\nx,1,2\n", "rows.csv, row 2: 3 values, and 2 names in the first line"),
        ("", "rows.csv: no column is called a"),
    ):
        with pytest.raises(SystemExit, match=line):
            printed(text, tmp_path, rows, monkeypatch, capsys, **TABLE)


def test_names_of_rows_need_no_name(tmp_path, monkeypatch, capsys):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    text, rows = from_weights(ABOUT | TABLE, "model.safetensors"), "a,c\nfirst,9,x\nsecond,-9,x\n"
    assert printed(text, tmp_path, rows, monkeypatch, capsys, **TABLE) == ["no", "yes"]


def test_a_column_of_lists_is_no_text_of_a_csv():
    vectors = {"name": "v", "kind": "list", "features": ["v[0]", "v[1]"]}
    text = from_weights(ABOUT | {"columns": [NUMBER | {"features": ["a"]}, vectors]}, "w")
    assert "csv" not in text
    assert "medians" not in text.replace("the median of", "")
    assert "numpy.isnan(x)" in text
    assert 'The "features" of all columns in model.json stand in them' in text


def test_outputs_of_a_module_of_ones_own_are_found_and_doubles_stay_doubles():
    text = from_weights(ABOUT | {"plain": False, "double": True, "calls": ["configure_model()"]}, "w")
    assert 'scores["logits"]' in text
    lines = text.splitlines()
    places = [lines.index(line) for line in ("torch.set_default_dtype(torch.float64)", "model.configure_model()")]
    assert places == sorted(places)
    assert not any(
        word in from_weights(ABOUT, "w") for word in ('scores["logits"]', "set_default_dtype", "configure_model")
    )


FORMS = {
    "tensor": "outputs",
    "dict": "{'features': -outputs, 'logits': outputs}",
    "mapping": "UserDict(logits=outputs)",
    "named": "namedtuple('Out', ['features', 'logits'])(-outputs, outputs)",
    "object": "SimpleNamespace(logits=outputs)",
    "tuple": "(outputs, -outputs)",
    "list": "[outputs, -outputs]",
}
"""What forward may return, in the ways in which runs find outputs."""


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_found_where_runs_find_them(form, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_outputs.py").write_text(
        "from collections import UserDict, namedtuple\nfrom types import SimpleNamespace\nfrom torch import nn\n"
        f"class Net(nn.Linear):\n def forward(self, x):\n  outputs = super().forward(x)\n  return {FORMS[form]}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("own_outputs", None)
    more = {"plain": False, "imports": ["from own_outputs import Net"], "build": "Net(3, 2)"}
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    text, x = from_weights(ABOUT | more, "model.safetensors"), np.array([[3, 2, 9], [1, 4, 9]], np.float32)
    assert printed(text, tmp_path, x, monkeypatch, capsys, **more) == ["no", "yes"]
    import own_outputs

    outputs = outputs_of(own_outputs.Net(3, 2)(torch.ones(1, 3)))
    assert outputs.shape == (1, 2)


def test_a_program_of_onnx_is_fed_by_name(tmp_path, monkeypatch, capsys):
    class Session:
        def __init__(self, path):
            assert path.name == "model.onnx"

        def get_inputs(self):
            return [SimpleNamespace(name="b_first"), SimpleNamespace(name="a_second")]

        def run(self, outputs, feed):
            return [np.stack([feed["b_first"], feed["a_second"]], 1)]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    samples = {"a": np.array([1, 5]), "b": np.array([2, 3])}
    text = from_onnx(ABOUT | PACKED, "model.onnx")
    assert printed(text, tmp_path, samples, monkeypatch, capsys, **PACKED) == ["yes", "no"]
    assert "import torch" not in text


def test_truth_values_are_missing_by_the_texts_of_missing_numbers(tmp_path, monkeypatch, capsys):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    said = []
    for kind in ("truth", "number"):
        table = {"columns": [NUMBER | {"kind": kind}, CATEGORY]}
        text = from_weights(ABOUT | table, "model.safetensors")
        said.append(printed(text, tmp_path, "a,c\nNA,x\n", monkeypatch, capsys, **table))
    assert said[0] == said[1]
