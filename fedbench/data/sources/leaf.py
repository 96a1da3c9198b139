"""LEAF's JSON files, each with {"users", "num_samples", "user_data": {user: {"x", "y"}}}; every user is a domain.

A folder has the folders train and test, or only all_data. Numbers are features. Text is tokens, one per character, by
its place in LEAF's character set; a target that is one character is a class of the same number. `femnist` and
`shakespeare` are what LEAF's preprocess.sh writes for these sets (Caldas et al., "LEAF: a benchmark for federated
settings", 2018).
"""

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from fedbench.config import DataConfig, Section
from fedbench.config.section import PositiveInt
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.description import Decision
from fedbench.data.reading.images import check_shape
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.published import NOT_NORMALISED, Extent, PublishedSet
from fedbench.data.reading.targets import read_targets_of
from fedbench.errors import ConfigError, first_line
from fedbench.tasks.targets import Targets

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's character set; the place of a character is its token."""
CHARACTER_NAMES = tuple({"\n": "newline", " ": "space"}.get(character, character) for character in CHARACTERS)
UNKNOWN = len(CHARACTERS)
CODES = np.full(128, UNKNOWN)
CODES[[ord(character) for character in CHARACTERS]] = np.arange(UNKNOWN)
"""The token of each ASCII code."""
FEMNIST_SHAPE = (1, 28, 28)
FEMNIST_CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
BY_HAND = "run data/{}/preprocess.sh -s niid --sf 1.0 -t sample of github.com/TalwalkarLab/leaf"


class Options(Section):
    shape: list[PositiveInt] = Field(
        [],
        max_length=3,
        description="shape of a sample of numbers; three make it an image: 1,28,28 (femnist's default)",
    )

    @field_validator("shape", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        words = value.split(",") if isinstance(value, str) else []
        return [int(word) for word in words] if words and all(word.isdecimal() for word in words) else value


PUBLISHED = {
    "femnist": PublishedSet(
        Extent(724_736, FEMNIST_SHAPE, len(FEMNIST_CLASSES)),
        ("train", "test"),
        below=("data/femnist/data", "femnist/data", "femnist", "data"),
        is_needed=lambda name: name.endswith(".json"),
        origin=BY_HAND.format("femnist"),
        licence="BSD 2-clause (LEAF)",
        size="805,263 images of 3,550 writers",
    ),
    "shakespeare": PublishedSet(
        Extent(3_803_542, (80,), UNKNOWN, "token"),
        ("train", "test"),
        below=("data/shakespeare/data", "shakespeare/data", "shakespeare", "data"),
        constants=NOT_NORMALISED,
        is_needed=lambda name: name.endswith(".json"),
        origin=BY_HAND.format("shakespeare"),
        licence="BSD 2-clause (LEAF)",
        size="4,226,158 texts of 1,129 roles",
    ),
}


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    path = path_in_name(config)
    files = tuple(file for part in part_files(path).values() for file in part)
    decided = {**options.model_dump(), "task": config.task}
    return Source(f"leaf:{path}", partial(read, config.name, path, options, config.task), files, decided)


class UserSamples(NamedTuple):
    """The samples and targets of one user in one file. where: the file and the user."""

    user: str
    x: list[Any]
    y: list[Any]
    where: str


def part_files(folder: Path) -> dict[str, list[Path]]:
    """The files of train and test, or of all_data alone. Raises ConfigError."""
    parts = {part: sorted((folder / part).glob("*.json")) for part in ("train", "test", "all_data")}
    if parts["train"] and parts["test"]:
        return {part: parts[part] for part in ("train", "test")}
    if parts["all_data"] and not parts["train"] and not parts["test"]:
        return {"train": parts["all_data"]}
    raise ConfigError(f"{folder}: no *.json files in both train and test, nor in all_data alone")


def leaf_decisions(texts: bool, targets: Targets) -> Iterator[Decision]:
    yield Decision("clients", "the users of the files are the clients")
    if texts:
        yield Decision("samples", f"characters are tokens 0 to {UNKNOWN - 1}: {CHARACTERS!r}")


def read(name: str, folder: Path, options: Options, task: str = "classification") -> Content:
    """Every file is read twice: for the counts, then for the samples. Raises ConfigError."""
    parts, shape = part_files(folder), options.shape or ([*FEMNIST_SHAPE] if name == "femnist" else [])
    sizes = {part: [(one.user, one.where, len(one.y)) for one in user_samples(files)] for part, files in parts.items()}
    train, test = (sum(count for _, _, count in sizes.get(part, ())) for part in ("train", "test"))
    if not train:
        raise ConfigError(f"{folder}: no training samples in it")
    files, counted = [*chain.from_iterable(parts.values())], [*chain.from_iterable(sizes.values())]
    x, y = next((user.x[0], user.y[0]) for user in user_samples(files) if user.y)
    texts = isinstance(x, str)
    if texts and shape:
        raise ConfigError(f"data.shape = {shape}: {folder} holds texts; leave it out")
    domains = tuple(sorted({user for user, _, count in counted if count}))
    named = FEMNIST_CLASSES if name == "femnist" else CHARACTER_NAMES if texts and is_character(y) else ()
    return Content(
        train,
        test,
        json_blocks(files, shape, texts, {user: number for number, user in enumerate(domains)}),
        kind="image" if len(shape) == 3 else None,
        domain_names=domains,
        categories=True,
        targets=partial(read_targets_of, [(where, count) for _, where, count in counted], task, named, None),
        one_part="test" not in parts,
        decisions=partial(leaf_decisions, texts),
    )


def user_samples(files: list[Path]) -> Iterator[UserSamples]:
    """The users of these files. Raises ConfigError."""
    for file in files:
        try:
            content = json.loads(file.read_bytes())
            entries = [(str(user), content["user_data"][user]) for user in content["users"]]
            users = [UserSamples(user, samples["x"], samples["y"], f"{file}, user {user}") for user, samples in entries]
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{file}: expected users, and user_data with x and y of each user") from error
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{file}: not a whole JSON file ({first_line(error)})") from error
        for samples in users:
            if not isinstance(samples.x, list) or not isinstance(samples.y, list) or len(samples.x) != len(samples.y):
                raise ConfigError(f"{samples.where}: x and y are not lists of the same length")
        yield from users


def is_character(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def json_blocks(files: list[Path], shape: list[int], texts: bool, numbers: dict[str, int]) -> Iterator[Block]:
    """A block for each user of each file. numbers: of the users. Raises ConfigError."""
    first: tuple[int, ...] = ()
    for user in user_samples(files):
        if user.y:
            samples = character_tokens(user.x, user.where) if texts else read_features(user.x, shape, user.where)
            follows = texts and is_character(user.y[0])
            targets = character_tokens(user.y, user.where)[:, 0] if follows else target_array(user.y, user.where)
            first = first or samples.shape[1:]
            check_shape(samples.shape[1:], first, user.where, "sample")
            yield Block(samples, targets, np.full(len(targets), numbers[user.user]))


def read_features(x: list[Any], shape: list[int], where: str) -> np.ndarray:
    """float32 [n, ...], of the given shape if there is one. Raises ConfigError."""
    values = number_array(x)
    if values.dtype.kind not in "biuf":
        raise ConfigError(
            f"{where}: x holds neither numbers of one shape nor strings; make whole numbers of lists of words "
            "(Sent140, Reddit) beforehand, and return them from --data package.module:factory (docs/data.md)"
        )
    if shape and prod(values.shape[1:]) != prod(shape):
        raise ConfigError(f"data.shape = {shape}: {where} has samples of shape {[*values.shape[1:]]}")
    features = values.reshape(len(values), *(shape or values.shape[1:] or (1,))).astype(np.float32)
    if not np.isfinite(features).all():
        raise ConfigError(f"{where}: a value that is not finite; leave the sample out or fill it in")
    return features


def character_tokens(texts: list[Any], where: str) -> np.ndarray:
    """int64 [n, length]. Raises ConfigError."""
    lengths = {len(text) if isinstance(text, str) else 0 for text in texts}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError(f"{where}: texts of different lengths; crop or pad them, for example with spaces")
    codes = np.array(texts).view(np.uint32).reshape(len(texts), -1)
    tokens = CODES[np.minimum(codes, len(CODES) - 1)]
    if (tokens == UNKNOWN).any():
        row, place = np.argwhere(tokens == UNKNOWN)[0]
        raise ConfigError(f"{where}, sample {row}: {texts[row][place]!r} is not one of LEAF's {UNKNOWN} characters")
    return tokens


def target_array(y: list[Any], where: str) -> np.ndarray:
    values = number_array(y)
    if values.dtype.kind not in "biufU" or len({type(value) is str for value in y}) > 1:
        raise ConfigError(f"{where}: y holds neither numbers nor text")
    return values


def number_array(values: list[Any]) -> np.ndarray:
    """An array of objects if the parts have different shapes."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.empty(0, object)
