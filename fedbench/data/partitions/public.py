"""The public, unlabelled images that every client may see."""

import numpy as np

from fedbench.config import PublicConfig
from fedbench.data.partitions.assignment import even_sizes, random_ranks, random_stream, round_to_total
from fedbench.data.partitions.pool import SamplePool
from fedbench.errors import ConfigError


def draw_public(source: SamplePool, options: PublicConfig, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the public set, and all rows withheld from clients, including these; from the train part, ascending.

    `reserve` rows are set aside, balanced, and the set is drawn from them, so that sets of several sizes and skews can
    be compared with the same clients. Smaller sets are subsets of larger ones, unless skewed. Raises ConfigError.
    """
    reserve = options.reserve
    if reserve is None:
        public = _draw_rows(source.train, source, options, options.size, random_stream(seed, "public"))
        return public, public
    if reserve < options.size:
        raise ConfigError(
            f"public.reserve = {reserve}: the public set has {options.size} samples; reserve at least them"
        )
    even = options.model_copy(update={"balance": "classes"}) if options.balance == "dirichlet" else options
    # The same classes give one more.
    aside = _draw_rows(source.train, source, even, reserve, random_stream(seed, "public"))
    return _draw_rows(aside, source, options, options.size, random_stream(seed, "public")), aside


def _draw_rows(
    rows: np.ndarray, source: SamplePool, options: PublicConfig, size: int, rng: np.random.Generator
) -> np.ndarray:
    """`size` of these rows, ascending: equally many per class, or per domain and class, or any."""
    if options.balance == "none":
        if size > len(rows):
            raise ConfigError(f"public.size = {size}: there are {len(rows)} training samples")
        return np.sort(rng.permutation(rows)[:size])
    by_domain = options.balance == "domains"
    if by_domain and not source.domain_names:
        raise ConfigError("public.balance = domains: the data set has 0 domains; balance over classes")
    cells = source.cells(rows) if by_domain else source.labels[rows]
    quotas = _counts_per_cell(source, options, size, rng)
    available = np.bincount(cells, minlength=len(quotas))
    if (quotas > available).any():
        raise _too_few(source, options, size, quotas, available)
    return np.sort(rows[random_ranks(cells, rng) < quotas[cells]])


def _counts_per_cell(source: SamplePool, options: PublicConfig, size: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of images per class, or per domain and class; the remainder is distributed at random."""
    if options.balance == "dirichlet":
        shares = rng.dirichlet(np.full(source.classes, options.alpha), size=1)
        return round_to_total(shares * size, size)[0]
    cells = source.classes * (len(source.domain_names) if options.balance == "domains" else 1)
    return even_sizes(size, cells)[np.argsort(rng.permutation(cells))]


def _too_few(
    source: SamplePool, options: PublicConfig, size: int, quotas: np.ndarray, available: np.ndarray
) -> ConfigError:
    cell = int(np.argmax(quotas > available))
    domain, label = divmod(cell, source.classes)
    where = f" of domain {source.domain_names[domain]}" if options.balance == "domains" else ""
    if options.balance == "dirichlet":
        remedy = f"raise public.alpha ({options.alpha:g}), lower public.size or take another seed"
    else:
        kind = "domain- and class-balanced" if options.balance == "domains" else "class-balanced"
        remedy = f"at most {int(available.min()) * len(available)} {kind} samples are there"
    return ConfigError(
        f"public.size = {size}: class {source.numbers[label]}{where} would give {quotas[cell]} of its "
        f"{available[cell]} training samples; {remedy}"
    )
