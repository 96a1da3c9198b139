"""A cache of its own for every test, and small files of every format."""

import functools
import gzip
import http.server
import io
import json
import pickle
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from PIL import Image
from torchvision import datasets

from fedbench.data import Dataset
from fedbench.data.cache import Block, Content, Source
from fedbench.errors import ConfigError
from tests.data import loading
from tests.data.reading.serving import NOWHERE, md5

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path):
    """The address of a web server for the files in tmp_path."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


@pytest.fixture
def load() -> Callable[..., Dataset]:
    """A data set by its name and options."""
    return loading.load


@pytest.fixture
def refused() -> Callable[..., str]:
    """The one line with which a data set is refused."""
    return functools.partial(loading.refused, loading.load)


@pytest.fixture
def load_damaged(load: Callable[..., Dataset]) -> Callable[..., Dataset | None]:
    """A data set after one of its files was damaged as hypothesis likes; None where it is refused in one line."""

    def attempt(data: st.DataObject, file: Path, name: str, header: int = 0, **options) -> Dataset | None:
        whole = file.read_bytes()
        changed = bytearray(whole)
        places = st.integers(0, len(changed) - 1)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(places | st.integers(0, header) if header else places)] = data.draw(st.integers(0, 255))
        file.write_bytes(changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])
        try:
            return load(name, **options)
        except ConfigError as error:
            text = str(error)
        finally:
            file.write_bytes(whole)
        assert "\n" not in text
        return None

    return attempt


@pytest.fixture
def save_images() -> Callable[..., Path]:
    """Files in a folder whose pixels all have the values given: shape (side, side, 3)."""

    def save(folder: Path, values: list[int], side: int = 8, name: str = "{:03d}.png") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for value in values:
            Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(folder / name.format(value))
        return folder

    return save


@pytest.fixture
def shared() -> Path:
    """Real data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"no real data in {SHARED}")
    return SHARED


@pytest.fixture
def pixels() -> Callable[..., np.ndarray]:
    """Random images, uint8 [count, H, W, 3]."""
    return lambda count, side=6, seed=0: np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), np.uint8)


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def encode() -> Callable[[np.ndarray], bytes]:
    return png


@pytest.fixture
def write_parquet() -> Callable[..., Path]:
    """A file as Hugging Face writes it; names: of the classes, or None for a file without that metadata."""

    def write(path: Path, images: list[bytes | None], labels: list, names: list[str] | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        columns = {
            "image": pa.array([{"bytes": image, "path": None} for image in images], struct),
            "label": pa.array(labels),
        }
        table = pa.table(columns)
        if names is not None:
            features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, path)
        return path

    return write


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], Path]:
    """An IDX file, packed where its name ends in .gz."""

    def write(path: Path, array: np.ndarray) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    return write


@pytest.fixture
def mnist_folder(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], Path]) -> Path:
    """Four files under MNIST's names: 20 training and 10 test images."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        write_idx(tmp_path / "idx" / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 28, 28), np.uint8))
        write_idx(tmp_path / "idx" / f"{part}-labels-idx1-ubyte.gz", np.arange(count, dtype=np.uint8) % 10)
    return tmp_path / "idx"


@pytest.fixture
def cifar(tmp_path, monkeypatch) -> Path:
    """CIFAR-10's archive and files with 4 images each, whose checksums stand in for the published ones."""
    folder = tmp_path / "made" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        data = np.full((4, 3072), number, np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": [0, 1, 2, number]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class{i}" for i in range(10)]}))
    with tarfile.open(tmp_path / "made" / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    kind = datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [(name, md5(folder / name)) for name, _ in kind.train_list])
    monkeypatch.setattr(kind, "test_list", [(name, md5(folder / name)) for name, _ in kind.test_list])
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5(folder / "batches.meta")})
    monkeypatch.setattr(kind, "tgz_md5", md5(tmp_path / "made" / "cifar-10-python.tar.gz"))
    monkeypatch.setattr(kind, "url", f"{NOWHERE}cifar-10-python.tar.gz")
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "made"


@pytest.fixture
def mnist(mnist_folder, monkeypatch) -> Path:
    """MNIST's files, whose checksums stand in for the published ones."""
    sums = [(name, md5(mnist_folder / name)) for name, _ in datasets.MNIST.resources]
    monkeypatch.setattr(datasets.MNIST, "resources", sums)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    monkeypatch.setenv("no_proxy", "*")
    return mnist_folder


def toy_source(reads: list[int], fail: bool = False, side: int = 2, **options) -> Source:
    """Six training images and two test images; appends to `reads` whenever it is read."""

    def blocks():
        yield Block(np.full((6, 1, side, side), 51, np.uint8), np.arange(6) % 3)
        if fail:
            raise ConfigError("row 6 is damaged")
        yield Block(np.full((2, 1, side, side), 255, np.uint8), np.array([0, 1]))

    def read() -> Content:
        reads.append(1)
        return Content(6, 2, blocks())

    return Source("toy", read, options=options)
