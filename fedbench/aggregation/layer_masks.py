"""The layers that each client trains: a deterministic search for the least biased mean (PerFedMask)."""

import numpy as np

SLACK = 1e-6
"""Tolerance of a client's budget in parameters, against rounding."""


def layer_masks(sizes: np.ndarray, capability: np.ndarray, search: bool) -> np.ndarray:
    """bool `[clients, layers]`: the first layers that fit, or the best that the search finds."""
    layers = np.arange(len(sizes))
    tolerance, best = 1e-9 * sizes.sum(), None
    for order in (layers, layers[::-1], np.argsort(-sizes, kind="stable"))[: 3 if search else 1]:
        masks = fill(order, sizes, capability)
        if search:
            masks = improve(masks, sizes, capability, tolerance)
        value = objective(masks, sizes, capability)
        if best is None or value < best[0] - tolerance:
            best = value, masks
        if value <= tolerance:
            break
    assert best is not None
    return best[1]


def fill(order: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> np.ndarray:
    """Every client takes the layers in this order as far as they fit."""
    loads, masks = np.zeros(len(capability)), np.zeros((len(capability), len(sizes)), dtype=bool)
    for layer in order:
        masks[:, layer] = loads + sizes[layer] <= capability * sizes.sum() + SLACK
        loads += sizes[layer] * masks[:, layer]
    return masks


def objective(masks: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> float:
    """J: how unevenly clients contribute to layers, and their unused budgets; 0 if everybody trains all layers."""
    k = masks / np.maximum(1, masks.sum(0))  # [clients, layers]
    unused = capability.sum() * sizes.sum() - (masks * sizes).sum()
    return float(sizes.sum() * k.max(1).sum() - (k * sizes).sum() + unused)


def improve(masks: np.ndarray, sizes: np.ndarray, capability: np.ndarray, tolerance: float) -> np.ndarray:
    """The masks after successive best moves, until none improves J."""
    masks = masks.copy()
    while (value := objective(masks, sizes, capability)) > tolerance:
        # Clients with the same mask and budget have the same moves, and the first of them is taken.
        kinds = np.column_stack([masks, capability])
        _, firsts, copies = np.unique(kinds, axis=0, return_index=True, return_counts=True)
        order = np.argsort(firsts)
        firsts, copies = firsts[order], copies[order]
        values = after_moves(masks[firsts], copies, sizes, capability[firsts])
        values += capability.sum() * sizes.sum()
        kind, a, b = np.unravel_index(first_best(values.ravel(), tolerance), values.shape)
        if not values[kind, a, b] < value - tolerance:
            break
        masks[firsts[kind], np.unique([a, b])] ^= True
    return masks


def first_best(values: np.ndarray, tolerance: float) -> int:
    """Index of the least value in a scan; a later one replaces an earlier one only if lower by a margin."""
    best = 0
    while len(lower := np.flatnonzero(values[best + 1 :] < values[best] - tolerance)):
        best += 1 + int(lower[0])
    return best


def after_moves(masks: np.ndarray, copies: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> np.ndarray:
    """J without its constant after each move `[kinds, layers, layers]`; infinite if a move is not allowed.

    masks: bool `[kinds, layers]` of `copies` clients each. Entry (i, a, a) flips layer a of one client of kind i, entry
    (i, a, b) with a < b flips both, one on and one off. A move changes the counts of two layers only, so that a
    client's largest share is in one of the two, or among its first two of before.
    """
    counts = copies @ masks  # clients per layer
    shares = masks / np.maximum(1, counts)
    fewer, more = 1.0 / np.maximum(1, counts - 1), 1.0 / (counts + 1)
    rest = largest_without(shares)  # [kinds, layers, layers]
    one = np.diagonal(rest, axis1=1, axis2=2)  # [kinds, layers]

    def total(others: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Sum over clients, one of which moves: `others` without it, and its own value."""
        return np.tensordot(copies, others, 1) - others + own

    drop = total(np.maximum(one, masks * fewer), one)
    take = total(np.maximum(one, masks * more), np.maximum(one, more))
    dropped, taken = (masks * fewer)[:, :, None], (masks * more)[:, None, :]
    swap = total(np.maximum(rest, np.maximum(dropped, taken)), np.maximum(rest, more))  # a off, b on

    # J decreases by the sizes of layers that anybody trains, and of all that is trained.
    off, on, scale = -sizes * (1 + (counts == 1)), sizes * (1 + (counts == 0)), sizes.sum()
    loads = (masks * sizes).sum(1)
    room = capability * scale + SLACK - loads
    flips = np.where(masks, scale * drop - off, scale * take - on)
    flips[np.where(masks, masks.sum(1, keepdims=True) < 2, sizes > room[:, None])] = np.inf
    swaps = scale * swap - off[:, None] - on
    swaps[~masks[:, :, None] | masks[:, None, :] | (sizes - sizes[:, None] > room[:, None, None])] = np.inf
    values = np.where(masks[:, :, None], swaps, swaps.swapaxes(1, 2))
    layers = np.arange(len(sizes))
    values[:, layers[:, None] > layers] = np.inf
    values[:, layers, layers] = flips
    return values - sizes[counts > 0].sum() - float(copies @ loads)


def largest_without(shares: np.ndarray) -> np.ndarray:
    """`[kinds, layers, layers]`: the largest share of a row with two layers (or one, on the diagonal) left out.

    If the two are its largest ones it is the second of them: a client that trains both gets a larger share in the one
    that is dropped anyway.
    """
    padded = np.pad(shares, ((0, 0), (0, 1)))
    order = np.argsort(-padded, axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(padded, order, 1).T[:, :, None, None]
    is_first = order[:, :1] == np.arange(shares.shape[1])  # [kinds, layers]
    return np.where(is_first[:, :, None] | is_first[:, None, :], second, first)
