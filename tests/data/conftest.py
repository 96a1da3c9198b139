"""A cache of its own for every test, and small files of every format."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
