"""Formats numbers with units."""


def duration(seconds: float) -> str:
    """`50 s`, `12 min`, `3 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: float) -> str:
    """Bytes as `1.2 MB` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f}\u00a0{unit}" if unit == "B" else f"{count:.3g}\u00a0{unit}"
        count /= 1000
    raise AssertionError
