"""Numbers such as -999 that usually stand for a missing value."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from fedbench.tasks.class_numbers import NAMES_SHOWN, first_of

SENTINELS = (
    *(-99, -999, -9999, -99999, -999.25, -9999.25, -32768),
    *(77, 88, 97, 98, 99, 777, 888, 997, 998, 999, 7777, 8888, 9997, 9998, 9999, 99999),
)
SENTINEL_RANGES = 2
"""They do if they stand in several rows, farther from all other numbers than so many times the range of these.

A negative one does at any distance if no other number is negative, as -99 among ages.
"""


def sentinel_text(numbers: np.ndarray) -> str:
    """What a column `[rows]` holds, if its least or greatest number may stand for a missing value; else nothing."""
    numbers = np.asarray(numbers, float)
    for number in (numbers.min(initial=np.inf), numbers.max(initial=-np.inf)):
        if number not in SENTINELS:
            continue
        others = numbers[~np.isin(numbers, SENTINELS)]
        least, greatest = others.min(initial=np.inf), others.max(initial=-np.inf)
        count, distance = int((numbers == number).sum()), max(least - number, number - greatest)
        is_apart = distance > SENTINEL_RANGES * (greatest - least) or number < 0 <= least
        if count > 1 and least < greatest and is_apart:
            return f"{number:g} in {count} rows, and {least:g} to {greatest:g} otherwise"
    return ""


def sentinel_remarks(rows: np.ndarray, name: str) -> Iterator[str]:
    """A line for columns of rows `[n]` or `[n, d]` in which a number may stand for a missing value. name: of a column.

    It is no error, because arrays and targets have no key which says that it is a number.
    """
    if len(rows) and rows.ndim <= 2:
        columns = rows.reshape(len(rows), -1)
        ends = np.isin(columns.min(0), SENTINELS) | np.isin(columns.max(0), SENTINELS)
        texts = ((number, sentinel_text(columns[:, number])) for number in np.flatnonzero(ends))
        seen = [*islice(((number, text) for number, text in texts if text), NAMES_SHOWN + 1)]
        if lines := [f"{name if columns.shape[1] == 1 else f'{name} {number}'} holds {text}" for number, text in seen]:
            yield f"{first_of(lines)}; if it stands for a missing value, fill it in or leave these rows out"
