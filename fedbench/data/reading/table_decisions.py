"""How a table was read, in words: decisions, and remarks where there was a choice."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fedbench.data.description import Decision
from fedbench.data.reading.cells import holds_lists
from fedbench.data.reading.samples import SampleKind
from fedbench.data.reading.spelling import spelling_decision
from fedbench.data.reading.table_columns import Features, Roles, TableOptions
from fedbench.tasks.class_numbers import first_of
from fedbench.tasks.targets import Targets

IDENTIFIER = re.compile(
    r"^(id|ID|Id)$|[_ .-](id|ID|Id)$|[a-z0-9](ID|Id)$"
    r"|^(?i:index|subject|patient|participant|respondent|person|case|mrn|hospital|site|centre|center|household)$"
)
"""Names of columns that name rows, patients and the like: id, patient_id, patientId, subject."""
FEW_ROWS = 10
"""Up to so many rows a column may count them by chance."""
MANY_ROWS, REPEATS = 2000, 4
"""Rows that are looked at first, because most columns fail there; rows for each value of a column that tells the
target, so that it does not by chance."""


def remarks_on_samples(
    kind: SampleKind | None, roles: Roles, samples: np.ndarray, read: dict[str, Features]
) -> Iterator[str]:
    """How features were read, where there was a choice."""
    if kind is None and samples.dtype.kind in "iu":
        name = roles.features[0]
        yield f"column {name} holds lists of whole numbers, which are tokens; --data.kind feature for counts"
    counters = [
        name
        for name, features in read.items()
        if features.names == [name] and not features.category and counts_rows(features.values[:, 0])
    ]
    for name in counters:
        yield f"column {name} counts the rows and is a feature; --data.drop {name} if it is none"
    for name, features in read.items():
        if name not in counters and (IDENTIFIER.search(name) or are_all_different(features)):
            why = (
                "has the name of an identifier" if IDENTIFIER.search(name) else "has another whole number in every row"
            )
            yield (
                f"column {name} {why} and is a feature; --data.drop {name} if it is none, --data.user {name} if it is "
                f"the user, --partition.test_by {name} if its rows stay on one side of the split"
            )


def remarks_on_target(features: Iterable[pd.Series], target: pd.Series) -> Iterator[str]:
    """A line for the columns of features whose repeated values always stand beside the same target."""
    if holds_lists(target) or target.nunique() < 2:
        return
    targets, _ = pd.factorize(target)
    names = [str(column.name) for column in features if not holds_lists(column) and tells_target(column, targets)]
    if names:
        yield (
            f"{columns_text(names, 'tells', 'tell')} the target alone: where the value is the same, so is the target; "
            f"--data.drop {names[0]} if it is known only after the target"
        )


def remarks_on_user(features: Iterable[pd.Series], owners: np.ndarray | None) -> Iterator[str]:
    """A line for the columns of features that name the user, texts [rows], in other words."""
    if owners is None:
        return
    users, known = pd.factorize(owners)
    names = [
        str(column.name)
        for column in features
        if not holds_lists(column) and values_of_one_target(column, users) == len(known)
    ]
    if 2 < len(known) < len(owners) and names:
        yield (
            f"{columns_text(names, 'names', 'name')} the user: each user has one value, and each another one; "
            f"--data.drop {names[0]} if it is no feature"
        )


def tells_target(column: pd.Series, targets: np.ndarray) -> bool:
    """Whether rows of equal values have equal targets, class numbers [rows], and values repeat more than by chance."""
    some = slice(None, None, max(1, len(column) // MANY_ROWS))
    shown = column.iloc[some]
    few = values_of_one_target(shown, targets[some])
    if few in (None, len(shown)):  # the latter are measurements
        return False
    different = values_of_one_target(column, targets)
    return different is not None and 1 < different <= len(column) / REPEATS


def values_of_one_target(column: pd.Series, targets: np.ndarray) -> int | None:
    """How many values a column has, if rows of equal values have equal targets, numbers [rows]; else None."""
    codes, known = pd.factorize(column, use_na_sentinel=False)
    return len(known) if len(np.unique(codes * (targets.max() + 1) + targets)) == len(known) else None


def are_all_different(features: Features) -> bool:
    """Whether a column holds whole numbers, another one in each row, in more rows than by chance."""
    numbers = features.values[:, 0]
    if features.kind != "number" or features.void or len(numbers) <= FEW_ROWS or (numbers % 1).any():
        return False
    return len(np.unique(numbers)) == len(numbers)


def counts_rows(numbers: np.ndarray) -> bool:
    """Whether numbers go up by one from 0 or 1, in more rows than do so by chance."""
    return len(numbers) > FEW_ROWS and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


def decisions_on(
    options: TableOptions, roles: Roles, read: dict[str, Features], targets: Targets
) -> Iterator[Decision]:
    """How the columns were read."""
    how: Callable[[object], Literal["given", "certain"]] = lambda option: "given" if option else "certain"  # noqa: E731
    yield Decision("targets", f"column {roles.label} is the target", how(options.label), "data.label", roles.label)
    if roles.user:
        yield Decision("clients", f"column {roles.user} is the user", how(options.user), "data.user", roles.user)
    for key in ("numbers", "categories"):
        names = [name for name, features in read.items() if features.category == (key == "categories")]
        beside = [name for name in options.categories if name not in read] if key == "categories" else []
        given = [*beside, *(name for name in names if name in getattr(options, key))]
        if given:
            text = f"{columns_text(with_category_counts(given, read), 'holds', 'hold')} {key}"
            yield Decision("samples", text, "given", f"data.{key}", given)
        if others := [name for name in names if name not in given]:  # no key: it would say that these are no codes
            yield Decision("samples", f"{columns_text(with_category_counts(others, read), 'holds', 'hold')} {key}")
    if not read:
        yield Decision("samples", f"column {roles.features[0]} is the sample")
    if out := [name for name in roles.out if name not in options.drop]:
        text = f"{columns_text(out, 'is', 'are')} left out, as an index without a name"
        yield Decision("samples", text, "certain", "data.drop", out)
    if options.drop:
        text = f"{columns_text(options.drop, 'is', 'are')} left out"
        yield Decision("samples", text, "given", "data.drop", options.drop)
    if void := {name: features for name, features in read.items() if features.void}:
        yield imputing(void, options.impute)
    if options.spelling:
        yield spelling_decision(options.spelling)


def imputing(void: Mapping[str, Features], impute: str) -> Decision:
    """How missing values are filled. void: the features of columns that lack some."""
    numbers, texts = (
        [f"{name} ({own.void})" for name, own in void.items() if own.category == category] for category in (False, True)
    )
    lines = [f"missing values of {columns_text(numbers, 'are', 'are')} the median of the client's training samples"]
    lines = lines * bool(numbers)
    if texts:
        lines.append(f"missing values of {columns_text(texts, 'are', 'are')} a category")
    return Decision("samples", ", ".join([*lines, "with a column of 0 and 1 each"]), "given", "data.impute", impute)


def with_category_counts(names: Sequence[str], read: dict[str, Features]) -> list[str]:
    """The names of columns, with the number of their categories."""
    return [f"{name} ({len(read[name].names)})" if name in read and read[name].category else name for name in names]


def columns_text(names: Sequence[str], one: str, several: str) -> str:
    """`column a is`, or `columns a, b are`, with these verbs."""
    return f"column {names[0]} {one}" if len(names) == 1 else f"columns {first_of(names)} {several}"
