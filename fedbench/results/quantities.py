"""Formats numbers with units."""

from collections.abc import Iterable, Sequence


def duration(seconds: float) -> str:
    """`50 s`, `12 min`, `3 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def seed_range(seeds: Sequence[int]) -> str:
    """`seed 3`, `seeds 0, 1`, `seeds 0 to 9, 20`; empty if there are none."""
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {ranges(seeds)}" if seeds else ""


def ranges(numbers: Iterable[int]) -> str:
    """`0, 1`, `0 to 9, 20`: of three or more in a row the first and the last."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)


def size(count: float) -> str:
    """Bytes as `1.2 MB` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f}\u00a0{unit}" if unit == "B" else f"{count:.3g}\u00a0{unit}"
        count /= 1000
    raise AssertionError
