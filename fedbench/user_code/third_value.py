"""The third value of items and arrays (x, y, user) is whose sample it is, unless it looks like something else.

So does the target of (ids, mask, target), a weight, or the number of a row.
"""

from collections.abc import Sequence
from typing import Any

from fedbench.errors import ConfigError, open_decision
from fedbench.user_code.forms import shape_of

ONE_TARGET = ("auto", "classification", "binary", "regression")
"""Tasks whose targets are one value for each sample, unless the data say otherwise."""
WITH_USER = 'a dict {"x": ..., "label": ..., "user": ...}'


def check_second(where: str, sample: Any, second: Any, task: str) -> None:
    """Raises ConfigError if the second value may be a part of the sample, and the third one the target."""
    shape = shape_of(second)
    if task not in ONE_TARGET or shape != shape_of(sample) or max(shape, default=1) == 1:
        return
    raise open_decision(
        where,
        f"of three values the second has the shape of the first, {[*shape]}",
        {
            f"{WITH_USER}, or --task of such targets": "the target, and the third is the user",
            'a dict {"x1": ..., "x2": ..., "label": ...}': "a part of the sample, and the third is the target",
        },
    )


def check_vector(where: str, second: Any, third: Any, task: str) -> None:
    """Raises ConfigError if the second value is a row of floats, but no bits, and the third may be a class."""
    shape, kind = shape_of(second), str(getattr(second, "dtype", ""))
    if task not in ONE_TARGET or task == "regression" or max(shape, default=1) == 1 or "float" not in kind:
        return
    if all(value in (0, 1) for value in second.reshape(-1).tolist()) or not isinstance(third, int | str):
        return
    raise open_decision(
        where,
        f"of three values the second is a row of {shape[-1]} floats",
        {
            f"{WITH_USER}, or --task regression": "the target, and the third is the user",
            'a dict {"x1": ..., "x2": ..., "label": ...}': "a part of the sample, and the third is the target",
        },
    )


def check_kind(where: str, third: Any, with_user: str = WITH_USER) -> None:
    """Raises ConfigError for a third value that is a float."""
    if isinstance(third, float):
        raise _open(where, f"is a float, such as {third}", "a weight or another number", with_user)


def check_users(where: str, users: Sequence[Any], train: int, with_user: str = WITH_USER) -> None:
    """Raises ConfigError for third values that are one for all rows, or another one for each of the training rows.

    users: of all rows, those for training first. with_user: how to say that they are users.
    """
    if len({*users[:train]}) == train:
        raise _open(where, f"is another one in each of {train} rows", "the number or the name of a row", with_user)
    if len({*users}) == 1:
        raise _open(where, f"is {users[0]!r} in all rows", "a weight or another number", with_user)


def _open(where: str, seen: str, otherwise: str, with_user: str) -> ConfigError:
    return open_decision(
        where,
        f"the third value of (x, y, user) {seen}",
        {with_user: "the user of the sample", "leave it out": otherwise},
    )
