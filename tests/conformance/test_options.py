"""Every option of every method at its smallest and its largest legal number: it runs, or one line refuses it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import annotated_types as limits
import pytest
import torch
from torch.utils.data import TensorDataset

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.runtime.drive import drive
from fedbench.runtime.hosts import InProcess
from tests.runtime.rounds import small

NEAR = 1e-3
"""How near a number comes to a limit that it must not reach."""


@cache
def few_images(train: bool = True) -> TensorDataset:
    """Three classes in turn, 36 images to train and 12 to test."""
    labels = torch.arange(36 if train else 12) % 3
    noise = torch.rand(len(labels), 1, 4, 4, generator=torch.Generator().manual_seed(int(train)))
    return TensorDataset(noise * 0.5 + labels[:, None, None, None] / 6, labels)


def numbers_of(annotation: Any, metadata: list[Any]) -> Iterator[tuple[type, list[Any]]]:
    """The types of number that an option takes, with their limits."""
    if annotation in (int, float):
        yield annotation, metadata
    elif isinstance(annotation, type(Annotated[int, 0])):
        kind, *given = get_args(annotation)
        yield from numbers_of(kind, [limit for info in given for limit in info.metadata])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from numbers_of(part, metadata)


def ends(field: Any) -> dict[str, float]:
    """The smallest and the largest legal number of an option, where it has such."""
    found = dict[str, float]()
    for kind, metadata in numbers_of(field.annotation, field.metadata):
        for limit in metadata:
            if isinstance(limit, limits.Ge):
                found["smallest"] = kind(limit.ge)
            elif isinstance(limit, limits.Gt):
                found["smallest"] = int(limit.gt) + 1 if kind is int else limit.gt + NEAR
            elif isinstance(limit, limits.Le):
                found["largest"] = kind(limit.le)
            elif isinstance(limit, limits.Lt):
                found["largest"] = limit.lt - NEAR
    return found


def cases(method: str) -> Iterator[dict[str, Any]]:
    """Options of a run: whole numbers one by one, as 0 epochs leave others nothing to do, and all others at once."""
    fields = load(method).Options.model_fields
    for end in ("smallest", "largest"):
        values = {name: own[end] for name, field in fields.items() if end in (own := ends(field))}
        yield from ({name: value} for name, value in values.items() if isinstance(value, int))
        if together := {name: value for name, value in values.items() if not isinstance(value, int)}:
            yield together


def asked(method: str, options: dict[str, Any]) -> Config:
    config = small(
        method,
        data={"name": f"{__name__}:few_images"},
        partition={"name": "iid", "clients": 3},
        model={"name": "mlp", "hidden": 4},
        rounds=2,
    )
    if config.public.size:
        config.public.size = 6
    config.method = type(config.method)(name=method, **{**config.method.options, **options})
    return config


def outcome(method: str, options: dict[str, Any], folder: Path) -> str:
    """ "" if it ran without a failure, else the line that refuses it before round 1."""
    try:
        resolved = resolve(asked(method, options))
        check_run(resolved)
    except ConfigError as error:
        return str(error)
    folder.mkdir()
    drive(resolved, folder, InProcess())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {line["round"] for line in lines} == {1, 2}
    assert {line["clients"] for line in lines} == {3}
    assert not any(line["failed"] for line in lines)
    return ""


@pytest.mark.parametrize("method", names())
def test_the_ends_of_every_option_run_or_are_refused_in_one_line(method, tmp_path):
    for number, options in enumerate(cases(method)):
        line = outcome(method, options, tmp_path / str(number))
        if line and len(options) > 1:  # what does not go together goes alone
            for name, value in options.items():
                outcome(method, {name: value}, tmp_path / f"{number}-{name}")
        assert "\n" not in line


def test_every_number_has_an_end():
    """Else this file would miss it."""
    missed = {
        f"{method}.{name}"
        for method in names()
        for name, field in load(method).Options.model_fields.items()
        if any(numbers_of(field.annotation, [])) and "smallest" not in ends(field)
    }
    assert missed == set()
