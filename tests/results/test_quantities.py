"""Numbers with what they count."""

import pytest

from fedbench.results.quantities import duration, seed_range, size


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (99, "99 s"), (600, "10 min"), (11_100, "3 h 05 min")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_bytes_in_words():
    told = [size(count).replace("\u00a0", " ") for count in (12, 3_456_789, 2 * 10**9)]
    assert told == ["12 B", "3.46 MB", "2 GB"]


@pytest.mark.parametrize(
    ("seeds", "text"),
    [([], ""), ([3], "seed 3"), ([0, 1], "seeds 0, 1"), ([0, 1, 2, 7, 90, 91], "seeds 0 to 2, 7, 90, 91")],
)
def test_many_seeds_in_a_row_are_a_range(seeds, text):
    assert seed_range(seeds) == text
