"""The layout of PFLlib: `train/0.npz`, `test/0.npz`, ... with a client each; the number of a file is the client's.

Each file has one array `data`, a pickled dict with x and y, which is read without running anything
(reading/pickles.py). Texts are pairs of tokens and length, of which the tokens are read.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.images import Item, check_shape
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.pickles import load_arrays
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.targets import read_targets_of
from fedbench.errors import ConfigError


class Options(Section):
    kind: SampleKind | None = Field(None, description="kind of the samples (default: by their type, see the docs)")


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
    known = (*files, config_file) if config_file.is_file() else tuple(files)
    decided = {**options.model_dump(), "task": config.task}
    reader = partial(read, files, class_count(config_file), options.kind, config.task)
    return Source(f"pflib:{path}", reader, known, decided)


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


def read(files: list[Path], classes: int | None, kind: SampleKind | None, task: str) -> Content:
    """Every file is read twice: for the counts, then for the samples. Raises ConfigError."""
    clients = len(files) // 2
    counts = [len(read_file(file).y) for file in files]
    first = next(read_file(file) for file, count in zip(files, counts, strict=True) if count)
    reader = SampleReader.of(Item(first.x[0], None, str(files[0])), kind)
    return Content(
        sum(counts[:clients]),
        sum(counts[clients:]),
        npz_blocks(files, reader.kind),
        kind=reader.kind,
        domain_names=tuple(file.stem for file in files[:clients]),
        categories=True,
        warnings=reader.remarks,
        targets=partial(read_targets_of, [*zip(map(str, files), counts, strict=True)], task, (), classes),
    )


def read_file(file: Path) -> ClientFile:
    """Raises ConfigError."""
    with refuse_damage(file, "not a file of PFLlib"):
        with ZipFile(file) as packed, packed.open("data.npy") as stream:
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            _, _, dtype = header(stream)
            if not dtype.hasobject:
                raise ValueError(f"data holds {dtype}, not a dict with x and y")
            data = load_arrays(stream)[()]
        x, y = (np.asarray(data[key]) for key in ("x", "y"))
        if x.dtype == object:  # pairs of tokens and length
            x = np.array([tokens for tokens, _ in x])
    if len(x) != len(y) or x.ndim < 2 or x.dtype.kind not in "biuf":
        raise ConfigError(
            f"{file}: x of shape {[*x.shape]} ({x.dtype}) and y of {[*y.shape]} are not samples and targets"
        )
    return ClientFile(x, y)


def npz_blocks(files: list[Path], kind: SampleKind) -> Iterator[Block]:
    """A block for each file. Raises ConfigError."""
    shape: tuple[int, ...] = ()
    for place, file in enumerate(files):
        x, y = read_file(file)
        if len(y):
            shape = shape or x.shape[1:]
            check_shape(x.shape[1:], shape, str(file), "sample")
            as_is = kind == "image" and x.dtype == np.uint8
            samples = x if as_is else SampleReader("token" if kind == "token" else "feature")(Item(x, None, str(file)))
            yield Block(samples, y, np.full(len(y), place % (len(files) // 2)))
