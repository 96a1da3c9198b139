"""Points of the simplex: random ones, those near a centre, and Floco's projection of clients to centres."""

from math import log

import torch
from torch import Tensor, nn


def walk(
    shape: tuple[int, int],
    stream: torch.Generator,
    centre: Tensor | None = None,
    radius: float = 0,
    inside: bool = False,
) -> Tensor:
    """Random points, float64 `[steps, M]`: of the whole simplex, or up to a distance from a centre `[M]`.

    inside: points near the centre stay in the simplex.
    """
    anywhere = simplex_points(shape, stream)
    if centre is None:
        return anywhere
    radii = torch.rand(shape[0], 1, dtype=torch.float64, generator=stream) * radius
    if inside:
        return towards(centre, anywhere, radii)
    return away(centre, torch.rand(shape, dtype=torch.float64, generator=stream) * 2 - 1, radii)


def simplex_points(shape: tuple[int, int], stream: torch.Generator) -> Tensor:
    """Uniform points of the simplex, float64 `[points, M]`."""
    drawn = torch.empty(shape, dtype=torch.float64).exponential_(generator=stream)
    return drawn / drawn.sum(1, keepdim=True)


def away(centre: Tensor, directions: Tensor, radii: Tensor) -> Tensor:
    """Points `[steps, M]` at these distances `[steps, 1]` (L1) from the centre; they may leave the simplex."""
    return centre + radii * (directions / directions.abs().sum(1, keepdim=True))


def towards(centre: Tensor, goals: Tensor, radii: Tensor) -> Tensor:
    """Points `[steps, M]` at these distances `[steps, 1]` (L1) on the way from the centre to points of the simplex."""
    distance = (goals - centre).abs().sum(1, keepdim=True)
    share = torch.where(distance > radii, radii / distance, 1.0)
    return (1 - share) * centre + share * goals


def project(rows: Tensor, count: int) -> Tensor:
    """Centres `[clients, M]` of M = `count` coordinates, from the clients' endpoints `[clients, M C H]`."""
    scores = components(rows, count)
    candidates = [spread_out(scores, z) for z in torch.linspace(1e-4, 1, 1000, dtype=torch.float64).tolist()]
    energies = [energy(centres) for centres in candidates]
    return candidates[energies.index(min(energies))]


def components(rows: Tensor, count: int) -> Tensor:
    """Scores `[clients, count]` on the first principal components, float64.

    The entry of largest magnitude of a component is positive; components that are all rounding error score 0.
    """
    centred = rows.to(torch.float64)
    centred = centred - centred.mean(0)
    left, sizes, right = torch.linalg.svd(centred, full_matrices=False)
    signs = right.gather(1, right.abs().argmax(1, keepdim=True)).sign().flatten()
    scores = left * torch.where(sizes > 1e-10 * sizes[0], sizes * signs, 0.0)
    return nn.functional.pad(scores[:, :count], (0, max(0, count - scores.shape[1])))


def spread_out(scores: Tensor, z: float) -> Tensor:
    """Every row's nearest point with entries >= 0 that sum to z, divided by that sum `[clients, M]`."""
    scores = scores - scores.amax(1, keepdim=True)  # moves no nearest point, and small z are not lost in large scores
    ordered = scores.sort(1, descending=True).values
    excess = ordered.cumsum(1) - z
    places = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64)
    positive = (ordered * places > excess).sum(1, keepdim=True)
    nearest = (scores - excess.gather(1, positive - 1) / positive).clamp_(min=0)
    return nearest / nearest.sum(1, keepdim=True)


def energy(centres: Tensor) -> float:
    """log of the mean over pairs of 1 / distance^2, distances of at least 1e-4; 0 for a single client."""
    distances = nn.functional.pdist(centres).clamp_(min=1e-4)
    return float(distances.pow(-2).sum().log()) - log(len(distances)) if len(distances) else 0.0
