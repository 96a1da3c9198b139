"""The search for the layers that every client trains."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.aggregation.layer_masks import first_best, layer_masks, objective
from tests.methods.simulator import close

LAYERS = np.array([10, 20, 30, 40])


def text(masks: np.ndarray) -> str:
    return " ".join("".join(str(int(m)) for m in row) for row in masks)


@pytest.mark.parametrize(
    ("sizes", "capability", "search", "masks", "value"),
    [
        (LAYERS, (1, 1, 1), True, "1111 1111 1111", 0),
        (LAYERS, (0.5, 0.5, 0.5), False, "1100 1100 1100", 130),
        (LAYERS, (0.5, 0.5, 0.5), True, "1001 1001 1001", 50),
        (LAYERS, (1, 0.5, 0.3), False, "1111 1100 1100", 86.666667),
        (LAYERS, (1, 0.5, 0.3), True, "1111 1100 1100", 86.666667),
        (LAYERS, (1, 0.4, 0.2), False, "1111 1100 1000", 103.333333),
        (LAYERS, (1, 0.4, 0.2), True, "1111 0100 0100", 86.666667),
        (np.array([30, 5]), (1, 1, 0.9, 0.2), True, "11 11 10 01", 15.166667),
    ],
)
def test_masks(sizes, capability, search, masks, value):
    found = layer_masks(sizes, np.array(capability, dtype=float), search)
    assert text(found) == masks
    assert close(objective(found, sizes, np.array(capability)), [value])


def literal_objective(masks, sizes, capability) -> float:
    """J, letter by letter."""
    whole, value = sum(sizes), 0.0
    for i, mask in enumerate(masks):
        shares = [mask[k] / max(1, sum(m[k] for m in masks)) for k in range(len(sizes))]
        unused = capability[i] * whole - sum(s * m for s, m in zip(sizes, mask, strict=True))
        value += whole * max(shares) - sum(k * s for k, s in zip(shares, sizes, strict=True)) + unused
    return value


def literal_search(sizes, capability) -> list[list[int]]:
    """The search, move by move."""
    count, whole = len(sizes), sum(sizes)
    tolerance, best = 1e-9 * whole, None
    fits = lambda mask, nu: sum(s * m for s, m in zip(sizes, mask, strict=True)) <= nu * whole + 1e-6  # noqa: E731
    ways = [range(count), range(count)[::-1], sorted(range(count), key=lambda k: -sizes[k])]
    for order in ways:
        masks = [[0] * count for _ in capability]
        for mask, nu in zip(masks, capability, strict=True):
            for k in order:
                mask[k] = 1
                mask[k] = int(fits(mask, nu))
        while (value := literal_objective(masks, sizes, capability)) > tolerance:
            found = None
            for i, a, b in product(range(len(masks)), range(count), range(count)):
                if a > b or (a < b and masks[i][a] == masks[i][b]):
                    continue
                moved = [list(mask) for mask in masks]
                for k in {a, b}:
                    moved[i][k] ^= 1
                if not fits(moved[i], capability[i]) or (any(masks[i]) and not any(moved[i])):
                    continue
                after = literal_objective(moved, sizes, capability)
                if found is None or after < found[0] - tolerance:
                    found = after, moved
            if found is None or not found[0] < value - tolerance:
                break
            masks = found[1]
        if best is None or value < best[0] - tolerance:
            best = value, masks
    return best[1]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
    st.lists(st.sampled_from([0.05, 0.2, 0.3, 0.5, 0.7, 1.0]), min_size=1, max_size=5),
)
@settings(max_examples=60)
def test_the_search_finds_what_the_literal_one_finds(sizes, capability):
    found = layer_masks(np.array(sizes), np.array(capability), True)
    assert found.astype(int).tolist() == literal_search(sizes, capability)
    assert close(
        objective(found, np.array(sizes), np.array(capability)), [literal_objective(found, sizes, capability)], 6
    )


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=7),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=12),
)
@settings(max_examples=60)
def test_budgets_are_respected_and_the_search_never_loses(sizes, capability):
    sizes, capability = np.array(sizes), np.array(capability)
    found, start = (layer_masks(sizes, capability, search) for search in (True, False))
    loads = (found * sizes).sum(1)
    assert (loads <= capability * sizes.sum() + 1e-6).all()
    least = objective(found, sizes, capability)
    assert least <= objective(start, sizes, capability) + 1e-6
    assert least >= (capability * sizes.sum() - loads).sum() - 1e-6
    assert (found.any(1) >= start.any(1)).all()


def test_a_tie_goes_to_the_first_of_a_scan():
    assert first_best(np.array([3.0, 1.0 + 1e-12, 1.0, 2.0]), 1e-9) == 1
    assert first_best(np.array([np.inf, np.inf, 1.0]), 1e-9) == 2
    assert first_best(np.array([np.inf, np.inf]), 1e-9) == 0


def test_many_clients_take_seconds_not_hours():
    capability = np.array([0.125, 1.0] * 40)
    found = layer_masks(np.random.default_rng(0).integers(100, 10_000, 20), capability, True)
    assert found[1::2].all()
