"""The layout of PFLlib: `train/0.npz`, `test/0.npz`, ... with a client each; the number of a file is the client's.

Each file has one array `data`, a pickled dict with x and y. Texts are pairs of tokens and length, of which the tokens
are read.

A pickle names functions to call. The few that make up a NumPy array are replaced by `PickledValue`, which only keeps
what it is given; any other name is refused. Nothing of NumPy sees the content before its types and sizes have been
checked.
"""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import ZipFile

import numpy as np
from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.description import Decision
from fedbench.data.normalisation import Channels
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.images import Item, check_shape
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.targets import read_targets_of
from fedbench.errors import ConfigError

PLAIN = re.compile(r"[biuf][1248]|S\d+|U\d+")
OBJECTS = re.compile(r"O\d*")
CORES = ("numpy.core.multiarray", "numpy._core.multiarray")


class Options(Section):
    kind: SampleKind | None = Field(None, description="kind of the samples (default: by their type, see the docs)")
    channels: Channels | None = Field(
        None, description="dimension of a sample that is the channel; single: one for all"
    )


class ClientFile(NamedTuple):
    """The samples [n, ...] and targets [n, ...] of a file."""

    x: np.ndarray
    y: np.ndarray


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    path = path_in_name(config)
    parts = {part: client_files(path, part) for part in ("train", "test")}
    for client in sorted(parts["train"].keys() ^ parts["test"].keys()):
        raise ConfigError(f"data pflib:{path}: client {client} has no file in both train and test")
    files = [parts[part][client] for part in parts for client in sorted(parts["train"])]
    config_file = path / "config.json"
    inputs = (*files, config_file) if config_file.is_file() else tuple(files)
    decided = {**options.model_dump(), "task": config.task}
    reader = partial(read, files, class_count(config_file), options, config.task)
    return Source(f"pflib:{path}", reader, inputs, decided)


def client_files(path: Path, part: str) -> dict[int, Path]:
    """The file of each client. Raises ConfigError."""
    files = {int(file.stem): file for file in (path / part).glob("*.npz") if file.stem.isdecimal()}
    if not files:
        raise ConfigError(f"data pflib:{path}: no files {part}/0.npz, {part}/1.npz, ...")
    return files


def class_count(file: Path) -> int | None:
    """The number of classes in config.json, if it is there. Raises ConfigError."""
    if not file.is_file():
        return None
    with refuse_damage(file, "no JSON with num_classes"):
        return int(json.loads(file.read_bytes())["num_classes"])


def read(files: list[Path], classes: int | None, options: Options, task: str) -> Content:
    """Every file is read twice: for the counts, then for the samples. Raises ConfigError."""
    clients = len(files) // 2
    counts = [len(read_file(file).y) for file in files]
    first = next(read_file(file) for file, count in zip(files, counts, strict=True) if count)
    reader = SampleReader.of(Item(first.x[0], None, str(files[0])), options.kind, options.channels)
    return Content(
        sum(counts[:clients]),
        sum(counts[clients:]),
        npz_blocks(files, reader.kind),
        kind=reader.kind,
        channels=reader.constants,
        domain_names=tuple(file.stem for file in files[:clients]),
        categories=True,
        decisions=lambda targets: (Decision("clients", "each file of train and test is a client"), *reader.decisions),
        warnings=reader.remarks,
        targets=partial(read_targets_of, [*zip(map(str, files), counts, strict=True)], task, (), classes),
    )


def read_file(file: Path) -> ClientFile:
    """The samples and targets of a client in one part. Raises ConfigError."""
    with refuse_damage(file, "not a file of PFLlib"):
        with ZipFile(file) as packed, packed.open("data.npy") as stream:
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            _, _, dtype = header(stream)
            if not dtype.hasobject:
                raise ValueError(f"data holds {dtype}, not a dict with x and y")
            data = load_arrays(stream)[()]
        x, y = (np.asarray(data[key]) for key in ("x", "y"))
        if x.dtype == object and x.ndim == 2 and x.shape[1] == 2:  # pairs of tokens and length
            x = np.array([tokens for tokens, _ in x])
        if x.dtype == object:
            raise ConfigError(f"{file}: x holds objects ({type(x.flat[0]).__name__}); store one array of numbers")
    if len(x) != len(y) or x.ndim < 2 or x.dtype.kind not in "biuf":
        raise ConfigError(
            f"{file}: x of shape {[*x.shape]} ({x.dtype}) and y of {[*y.shape]} are not samples and targets"
        )
    return ClientFile(x, y)


def npz_blocks(files: list[Path], kind: SampleKind) -> Iterator[Block]:
    """A block for each file. Raises ConfigError."""
    shape: tuple[int, ...] = ()
    for number, file in enumerate(files):
        x, y = read_file(file)
        if len(y):
            shape = shape or x.shape[1:]
            check_shape(x.shape[1:], shape, str(file), "sample")
            as_is = kind == "image" and x.dtype == np.uint8
            samples = x if as_is else SampleReader("token" if kind == "token" else "feature")(Item(x, None, str(file)))
            yield Block(samples, y, np.full(len(y), number % (len(files) // 2)))


class PickledValue:
    """An array, its type, or a number, as it is pickled. given: the arguments; state: what was set on it."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class ArrayUnpickler(pickle.Unpickler):
    """Knows nothing but containers, numbers, text and `PickledValue`. Raises UnpicklingError for other names."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")) or (
            module in CORES and name in ("_reconstruct", "scalar")
        ):
            return PickledValue
        raise pickle.UnpicklingError(
            f"it calls {module}.{name}, which may be code; only arrays and containers are read"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def load_arrays(file: IO[bytes]) -> Any:
    """The content of a pickle of containers, numbers, text and arrays. Raises UnpicklingError for anything else."""
    try:
        return restore(ArrayUnpickler(file).load())
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"damaged: {error}") from error


def restore(value: Any) -> Any:
    """The value with arrays and numbers for what stands for them."""
    if isinstance(value, PickledValue):
        return stored_array(value)
    if isinstance(value, dict):
        return {key: restore(item) for key, item in value.items()}
    return type(value)(map(restore, value)) if type(value) in (list, tuple) else value


def stored_array(stored: PickledValue) -> Any:
    """The array or number. Raises UnpicklingError."""
    if len(stored.given) == 2:  # a number: its type and bytes
        kind, raw = stored.given
        return np.frombuffer(raw, dtype_of(kind), count=1)[0]
    _, shape, kind, by_column, content = stored.state
    if OBJECTS.fullmatch(kind.given[0]):
        array = np.empty(len(content), object)
        array[:] = [restore(item) for item in content]
    else:
        array = np.frombuffer(content, dtype_of(kind))
    return array.reshape(shape, order="F" if by_column else "C")


def dtype_of(stored: PickledValue) -> np.dtype:
    """A plain type from its name and byte order. Raises UnpicklingError."""
    name, order = stored.given[0], stored.state[1] if stored.state else "="
    if not PLAIN.fullmatch(name) or order not in ("<", ">", "|", "="):
        raise pickle.UnpicklingError(f"an array of type {name}; numbers and text are read")
    return np.dtype(order + name)
