"""PFLlib's layout, written as it writes it."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import partition
from fedbench.data.sources.pflib import load_arrays


def write(root: Path, parts: dict[str, list[dict[str, Any]]], classes: int = 3) -> Path:
    for part, clients in parts.items():
        (root / part).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(clients):
            np.savez_compressed(root / part / f"{number}.npz", data=data)
    config = {"num_clients": len(parts["train"]), "num_classes": classes, "non_iid": True, "batch_size": 10}
    (root / "config.json").write_text(json.dumps(config))
    return root


def client(count: int, seed: int, shape: tuple[int, ...] = (1, 4, 4)) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(count, *shape)).astype(np.float32), "y": np.arange(count) % 3}


@pytest.fixture
def made(tmp_path) -> Path:
    sizes = [(4, 2), (3, 1), *[(2, 1)] * 9]
    parts = {
        part: [client(own[at], 2 * n + at) for n, own in enumerate(sizes)] for at, part in enumerate(("train", "test"))
    }
    return write(tmp_path / "MNIST", parts)


def test_clients_keep_their_parts(made, load):
    dataset = load(f"pflib:{made}")
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.kind) == (25, 12, (1, 4, 4), "image")
    assert dataset.domain_names == tuple(map(str, range(11))), "in the order of their numbers"
    np.testing.assert_array_equal(dataset.samples[:4], client(4, 0)["x"])
    np.testing.assert_array_equal(dataset.samples[25:27], client(2, 1)["x"])
    assert dataset.labels[:5].tolist() == [0, 1, 2, 0, 0]
    found = partition(dataset, Config(data={"val": 0}, partition={"name": "natural"}), 0)
    assert [(len(own.train), len(own.test)) for own in found.clients] == [(4, 2), (3, 1), *[(2, 1)] * 9]


def test_texts_are_pairs_of_tokens_and_length(tmp_path, load):
    texts = np.empty((3, 2), object)
    for row in range(3):
        texts[row] = [[5, row, 0], 2]
    own = {"x": texts, "y": np.array([0, 1, 2])}
    dataset = load(f"pflib:{write(tmp_path, {'train': [own], 'test': [own]})}")
    assert (dataset.kind, dataset.samples.tolist()) == ("token", [[5, 0, 0], [5, 1, 0], [5, 2, 0]] * 2)


def test_signals_are_features_unless_named_otherwise(tmp_path, load):
    root = write(tmp_path, {"train": [client(3, 0, (9, 1, 8))], "test": [client(3, 1, (9, 1, 8))]})
    assert load(f"pflib:{root}", channels="first").kind == "feature"
    assert load(f"pflib:{root}", kind="image").kind == "image"


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


def test_code_in_a_file_is_refused_and_not_run(made, refused, monkeypatch):
    monkeypatch.chdir(made)
    np.savez_compressed(made / "train" / "0.npz", data={"x": Runs(), "y": np.zeros(1)})
    assert "0.npz: not a file of PFLlib (it calls posix.system, which may be code" in refused(f"pflib:{made}")
    assert not (made / "ran").exists()


def test_broken_files(made, refused):
    file = made / "train" / "1.npz"
    for data, text in (
        ({"x": np.zeros((2, 3))}, "not a file of PFLlib ('y')"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3)}, "x of shape [2, 3] (float64) and y of [3] are not samples"),
        ({"x": np.zeros((2, 1, 4, 4)), "y": np.array([0, 7])}, "1.npz, sample 1: label 7 is outside the class range"),
        ({"x": np.zeros((1, 2, 2, 2)), "y": np.array([0])}, "1.npz: the sample is"),
        (np.zeros(3), "data holds float64, not a dict"),
    ):
        np.savez_compressed(file, data=data)
        assert text in refused(f"pflib:{made}")
    file.write_bytes(b"PK")
    assert "1.npz: not a file of PFLlib" in refused(f"pflib:{made}")
    file.unlink()
    assert refused(f"pflib:{made}").endswith("client 1 has no file in both train and test")
    (made / "config.json").write_text("{}")
    file.with_name("x").mkdir()
    np.savez_compressed(file, data=client(2, 1))
    assert "config.json: no JSON with num_classes" in refused(f"pflib:{made}")
    assert "no files train/0.npz" in refused(f"pflib:{made / 'train'}")


def loaded(value, protocol: int = 4):
    return load_arrays(io.BytesIO(pickle.dumps(value, protocol)))


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=">i2").reshape(3, 2),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["ab", "c"]),
        np.array([True, False]),
        np.zeros((0, 3), np.uint8),
        np.float64(0.5),
        np.int64(-3),
    ],
    ids=lambda own: f"{own.dtype}{own.shape}",
)
def test_arrays_are_as_numpy_reads_them(array, protocol):
    found = loaded({"x": [array, (1, "a", None)]}, protocol)["x"]
    np.testing.assert_array_equal(found[0], array)
    assert (found[0].dtype, found[0].shape, found[1]) == (array.dtype, array.shape, (1, "a", None))


def test_arrays_of_an_older_numpy_are_read():
    older = pickle.dumps(np.arange(3), 3).replace(b"numpy._core.", b"numpy.core.")
    assert load_arrays(io.BytesIO(older)).tolist() == [0, 1, 2]


def test_arrays_of_objects_hold_containers():
    pairs = np.array([([1, 2], 2), ([3, 4], 1)], dtype=object)
    found = loaded(pairs)
    assert found.shape == (2, 2)
    assert found.tolist() == [[[1, 2], 2], [[3, 4], 1]]


@pytest.mark.parametrize("value", [Runs(), [Runs()], {"x": Runs()}, np.array([Runs()], dtype=object)])
def test_code_is_refused_and_not_run(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"it calls (posix|nt)\.system, which may be code"):
        loaded(value)
    assert not list(tmp_path.iterdir())


def test_sizes_and_types_are_checked():
    whole = pickle.dumps(np.arange(4, dtype=np.int64), 4)
    for broken in (whole.replace(b"K\x04\x85", b"K\x05\x85"), whole.replace(b"i8", b"O8"), whole[:-20]):
        assert broken != whole
        with pytest.raises(pickle.UnpicklingError):
            load_arrays(io.BytesIO(broken))
    with pytest.raises(pickle.UnpicklingError, match="an array of type M8"):
        loaded(np.array(["2020-01-01"], dtype="M8[D]"))


def test_samples_of_objects_are_refused(tmp_path, refused):
    x = np.empty(4, object)
    x[:] = [np.full((1, 4, 4), float(k)) for k in range(4)]
    held = {"x": x, "y": np.arange(4) % 2}
    root = write(tmp_path, {"train": [held], "test": [held]})
    assert "x holds objects (ndarray); store one array of numbers" in refused(f"pflib:{root}")
