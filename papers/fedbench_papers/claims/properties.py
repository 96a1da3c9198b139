"""Properties of runs that a claim asserts for every seed, read from their records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.statistics import LEAST_SEEDS
from fedbench_papers.claims.readings import Arms, Frames, accuracy, batch_gap, chosen_clients, kendall, pooled_accuracy
from fedbench_papers.claims.verdicts import (
    FAILS,
    HOLDS,
    LEVEL,
    PREMISE,
    TOO_FEW,
    UNDECIDED,
    Verdict,
    above,
    has_too_few,
    identity_verdict,
    of_seeds,
    property_of,
)

PERMUTATIONS = 2000
ENDS_OF_MODEL = ("head", "body.conv1")
"""The last and the first layer of the models in settings."""
LITTLE_TRUST = 0.1
"""A lambda below it says that a client trusts the public predictions little."""


def means_by_seed(arms: Arms, labels: Sequence[str], point: str) -> pd.DataFrame:
    """Mean over clients, seeds x labels, for the seeds of all labels."""
    return pd.DataFrame({label: accuracy(arms[label], point).groupby("seed").mean() for label in labels}).dropna()


def best_is_one_of(arms: Arms, point: str, labels: Sequence[str], among: Sequence[str], least: int) -> Verdict:
    """The best of these options is one of a subset; of equal ones the last is the best."""
    table = means_by_seed(arms, labels, point)[list(reversed(labels))]
    best = {int(str(seed)): str(label) for seed, label in table.idxmax(axis=1).items()}
    flags = {seed: label in among for seed, label in best.items()}
    return property_of(flags, least, f"best: {', '.join(best.values())}")


def needs_less(
    arms: Arms, point: str, ours: Mapping[str, float], theirs: Mapping[str, float], factor: float
) -> Verdict:
    """The best of our options costs at most 1 / factor of the best of theirs, per seed.

    ours, theirs: the share of cost by label; of equal ones the cheapest counts.
    """
    shares = []
    for options in (ours, theirs):
        order = sorted(options, key=lambda label: options[label])
        best = means_by_seed(arms, order, point).idxmax(axis=1)
        shares.append({int(str(seed)): options[str(label)] for seed, label in best.items()})
    flags = {seed: share * factor <= shares[1][seed] + 1e-12 for seed, share in shares[0].items()}
    text = " against ".join(", ".join(f"{value:.2g}" for value in by_seed.values()) for by_seed in shares)
    return property_of(flags, note=f"best shares {text}")


def layers_part(arms: Arms, point: str, label: str) -> Verdict:
    """The head's part of what is personal grows over rounds, the first layer's falls.

    By Kendall's tau with p <= 0.05 of the means over blocks of five rounds, because neighbouring rounds are dependent;
    the first block is without round 1.
    """
    tables = [arms[label].trace(f"personal_location/{layer}") for layer in ENDS_OF_MODEL]
    means = [t[t["round"] > 1].groupby(["seed", "round"])["value"].mean().unstack("seed") for t in tables]
    grows, falls = (table.groupby((table.index - 1) // 5).mean() for table in means)
    flags = {int(str(seed)): rises(grows[seed]) and rises(-falls[seed]) for seed in grows}
    taus = "; ".join(
        f"{layer}: tau " + ", ".join(f"{kendall(table[seed]):.2f}" for seed in table)
        for layer, table in zip(ENDS_OF_MODEL, (grows, falls), strict=True)
    )
    finals = ", ".join(f"{value:.3f}" for value in grows.iloc[-1:].to_numpy().ravel())
    return property_of(flags, note=f"{taus}; last part of {ENDS_OF_MODEL[0]} {finals}")


def rises(values: pd.Series) -> bool:
    """Whether Kendall's tau with the index exceeds 0 with p <= 0.05."""
    test = stats.kendalltau(values.index.to_numpy(), values.to_numpy(), alternative="greater")
    return bool(test.pvalue <= LEVEL)


def same_numbers(arms: Arms, point: str, first: str, second: str) -> Verdict:
    """Every score and trace is equal to the bit, in the seeds of both."""
    one, other = arms[first], arms[second]
    flags = {
        int(seed): of_seed(one.clients, seed).equals(of_seed(other.clients, seed))
        and of_seed(one.traces, seed).equals(of_seed(other.traces, seed))
        for seed in sorted(set(one.metrics["seed"]) & set(other.metrics["seed"]))
    }
    return identity_verdict(flags)


def of_seed(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    return table[table["seed"] == seed].reset_index(drop=True)


def alike_overlap(
    arms: Arms, point: str, label: str, classes: Sequence[Sequence[int]], rounds: Sequence[int]
) -> Verdict:
    """Clients with more common classes overlap more: Mantel's test by permuted clients, p <= 0.05 in every seed."""
    shared = common_classes(classes)
    correlations = {seed: mantel(matrix, shared) for seed, matrix in mean_overlaps(arms[label], rounds).items()}
    text = ", ".join(f"r {r:.2f} p {p:.4f}" for r, p in correlations.values())
    return property_of({seed: p <= LEVEL and r > 0 for seed, (r, p) in correlations.items()}, note=text)


def related_overlap(
    arms: Arms, point: str, label: str, classes: Sequence[Sequence[int]], rounds: Sequence[int], pair: Sequence[int]
) -> Verdict:
    """Two clients with related classes overlap more than the median of pairs without common classes."""
    shared, flags = common_classes(classes), {}
    apart = np.triu(shared == 0, 1)
    for seed, matrix in mean_overlaps(arms[label], rounds).items():
        flags[seed] = bool(matrix[pair[0], pair[1]] > np.median(matrix[apart]))
    return property_of(flags)


def common_classes(classes: Sequence[Sequence[int]]) -> np.ndarray:
    """The number of common classes of each two clients, `[n, n]`."""
    return np.array([[len(set(one) & set(other)) for other in classes] for one in classes])


def mean_overlaps(runs: Frames, rounds: Sequence[int]) -> dict[int, np.ndarray]:
    """The mean overlap matrix over a range of rounds, by seed; both directions averaged."""
    rows = runs.traces[runs.traces["name"].str.startswith("overlap/")]
    rows = rows[rows["round"].between(rounds[0], rounds[1])]
    other = rows["name"].str.removeprefix("overlap/").astype(int)
    overlaps = {}
    for seed, rows_of_seed in rows.assign(other=other).groupby("seed"):
        matrix = rows_of_seed.pivot_table(index="client", columns="other", values="value").to_numpy()
        overlaps[int(str(seed))] = np.nan_to_num((matrix + matrix.T) / 2)
    return overlaps


def mantel(first: np.ndarray, second: np.ndarray, draws: int = PERMUTATIONS) -> tuple[float, float]:
    """Correlation of two symmetric matrices off the diagonal, and its one-sided p by permuting the rows of one."""
    above = np.triu_indices(len(first), 1)
    rng = np.random.default_rng(0)
    seen = float(np.corrcoef(first[above], second[above])[0, 1])
    orders = (rng.permutation(len(first)) for _ in range(draws))
    drawn = [np.corrcoef(first[np.ix_(order, order)][above], second[above])[0, 1] for order in orders]
    return seen, (1 + int(np.sum(np.array(drawn) >= seen - 1e-12))) / (draws + 1)


def little_trust(arms: Arms, point: str, label: str) -> Verdict:
    """At the last round half of the clients or more have a small lambda and a public loss above the private one."""
    tables = {name: trust_table(arms[label], name) for name in ("lambda", "loss_private", "loss_public")}
    flags, texts = {}, []
    for seed in tables["lambda"].index.unique("seed"):
        lam, private, public = (table.loc[seed].iloc[-1] for table in tables.values())
        small = (lam < LITTLE_TRUST) & (public > private)
        flags[int(seed)] = bool(small.mean() >= 0.5)
        texts.append(f"{int(small.sum())} of {len(small)}")
    return property_of(flags, note="clients: " + ", ".join(texts))


def trust_table(runs: Frames, name: str) -> pd.DataFrame:
    """(seed, round) x client."""
    return runs.trace(name).pivot_table(index=["seed", "round"], columns="client", values="value")


def shut_out(arms: Arms, point: str, label: str, client: int = 0, by: int = 10) -> Verdict:
    """A client's lambda stays small from round `by` or earlier on."""
    rounds = shut_rounds(arms[label], client)
    flags = {seed: round is not None and round <= by for seed, round in rounds.items()}
    return property_of(flags, note="from round " + ", ".join(str(round) for round in rounds.values()))


def others_trust(arms: Arms, point: str, label: str, client: int = 0) -> Verdict:
    """Once a client's lambda stays small, the median lambda of the others is above."""
    table, flags, texts = trust_table(arms[label], "lambda"), {}, []
    for seed, round in shut_rounds(arms[label], client).items():
        others = pd.DataFrame(table.loc[seed]).drop(columns=client).median(axis="columns")
        flags[seed] = round is not None and bool((others.loc[round:] > LITTLE_TRUST).all())
        texts.append(f"{others.iloc[-1]:.2f}")
    return property_of(flags, note="median lambda of the others at the end " + ", ".join(texts))


def shut_rounds(runs: Frames, client: int) -> dict[int, int | None]:
    """The round from which a client's lambda stays small, by seed; None if it is not small at the end."""
    firsts: dict[int, int | None] = {}
    for seed, rows in trust_table(runs, "lambda").groupby("seed"):
        above = rows.droplevel("seed")[client] >= LITTLE_TRUST
        rounds = above.index.to_numpy()
        start = int(np.flatnonzero(above)[-1]) + 1 if above.any() else 0
        firsts[int(str(seed))] = int(rounds[start]) if start < len(rounds) else None
    return firsts


def fewer_bytes(arms: Arms, point: str, small: Sequence[str], large: str, factor: float) -> Verdict:
    """A client sends fewer bytes in a round, at least by a factor."""
    most, texts, flags = _bytes_up(arms[large]), list[str](), dict[int, bool]()
    for label in small:
        for seed, size in _bytes_up(arms[label]).items():
            ratio = most[seed] / size
            flags[seed] = flags.get(seed, True) and ratio > factor
            texts.append(f"{label}: {size:,.0f} bytes against {most[seed]:,.0f}, factor {ratio:,.0f}")
    return identity_verdict(flags, note="; ".join(texts))


def bytes_between(arms: Arms, point: str, first: str, second: str, factors: Sequence[float]) -> Verdict:
    """A client sends so many times the bytes of another arm in a round; factors: the least and the most."""
    others, (least, most) = _bytes_up(arms[second]), factors
    ratios = {seed: size / others[seed] for seed, size in _bytes_up(arms[first]).items()}
    text = "factor " + ", ".join(f"{ratio:.4f}" for ratio in ratios.values())
    return identity_verdict({seed: least <= ratio <= most for seed, ratio in ratios.items()}, note=text)


def bounded_gradients(arms: Arms, point: str, label: str, rate: float, images: int, public: int, steps: int) -> Verdict:
    """The mean over rounds of every client's squared gradient norm is at most the bound of FedMosaic's proposition 1,
    where its premise is not seen to be violated (`rough_losses`).

    The bound is 4 L loss / T + variance_private / (2 L images) + e^2 variance_public / (2 L public) + 2 drift, with the
    loss of the first round, the largest variances and drift of all, and L = 1 / (2 rate), the largest that the rate
    allows. A client above it whose losses may be as smooth as that speaks against the proposition; if there is none
    and some losses are not, the premise is not met. rate: of the steps; images: of a client; public: their number;
    steps: of a client in a round.
    """
    names = ("gradient_norm_squared", "lambda", "loss_private", "loss_public")
    squares, lam, private, others = (trust_table(arms[label], name) for name in names)
    worst = ("variance_private", "variance_public", "label_drift")
    rough = rough_losses(squares, lam, private + lam * others, rate).groupby("seed").any()  # seeds x clients
    flags, texts = {}, []
    for seed in squares.index.unique("seed"):
        most = {name: trust_table(arms[label], name).loc[seed].max() for name in worst}
        begun = (private + lam * others).loc[seed].iloc[0]
        noise = rate * (most["variance_private"] / images + np.e**2 * most["variance_public"] / public)
        terms = pd.DataFrame(squares.loc[seed])
        bound = 2 * begun / (rate * steps * len(terms)) + noise + 2 * most["label_drift"]
        shares = terms.mean() / bound
        flags[int(seed)] = not ((shares > 1) & ~rough.loc[seed]).any()
        texts.append(f"{shares.median():.2g} (largest {shares.max():.2g})")
    note = "mean squared gradient over the bound, median client: " + ", ".join(texts)
    if not rough.to_numpy().any():
        return property_of(flags, note=note)
    clients = ", ".join(f"{count} of {rough.shape[1]}" for count in rough.sum(axis=1))
    note = f"without {clients} clients, whose losses are less smooth than the rate asks for; {note}"
    verdict = property_of(flags, note=note)
    return verdict if verdict.fails or len(flags) < LEAST_SEEDS else replace(verdict, word=PREMISE)


def rough_losses(squares: pd.DataFrame, lam: pd.DataFrame, losses: pd.DataFrame, rate: float) -> pd.DataFrame:
    """Where a squared gradient refutes the premise of FedMosaic's proposition 1, (seed, round) x client.

    The premise: both losses are L/(1+e)-smooth, and the rate is at most 1 / (2 L). Then private + lambda public, which
    is not negative, is (1 + lambda) L/(1+e)-smooth, and its squared gradient at most twice this constant times itself.
    """
    return squares > losses * (1 + lam) / ((1 + np.e) * rate)


def _bytes_up(runs: Frames) -> dict[int, float]:
    """Bytes of a client in the last round, by seed."""
    rows = runs.at("fit").dropna(subset=["bytes_up"]).groupby("seed").last()
    return {int(str(seed)): float(value) for seed, value in (rows["bytes_up"] / rows["clients"]).items()}


def points_differ(arms: Arms, point: str, labels: Sequence[str], first: str, second: str) -> Verdict:
    """Per seed the order of methods differs after the fit, and first - second changes its sign or halves."""
    fit, agg = (means_by_seed(arms, labels, at) for at in ("fit", "agg"))
    flags, texts = {}, []
    for seed in agg.index:
        tau = float(stats.kendalltau(fit.loc[seed], agg.loc[seed]).statistic)
        gaps = [float(table.loc[seed, first] - table.loc[seed, second]) for table in (agg, fit)]
        moved = gaps[0] * gaps[1] < 0 or abs(gaps[1]) < abs(gaps[0]) / 2
        flags[int(seed)] = tau < 1 and moved
        texts.append(f"tau {tau:.2f}, {first} - {second} {gaps[0]:.1f} at agg, {gaps[1]:.1f} at fit")
    return property_of(flags, note="; ".join(texts))


def estimators_differ(
    arms: Arms, point: str, labels: Sequence[str], batch: int, most: float = 0.3, least: float = 0.1
) -> Verdict:
    """Mean over batches and over samples differ by more than `most` points, or swap neighbours of a ranking.

    The samples are in class order; the note gives the value for a shuffled order.
    """
    samples = means_by_seed(arms, labels, point)
    gaps = pd.DataFrame({label: batch_gap(arms[label], point, batch).groupby("seed").mean() for label in labels})
    swapped = [seed for seed in gaps.index if swaps(samples.loc[seed], samples.loc[seed] + gaps.loc[seed])]
    sizes = gaps.abs().melt(ignore_index=False)["value"]
    estimate = of_seeds(sizes)
    shuffled = np.mean([shuffled_gap(arms[label], point, batch) for label in labels])
    note = (
        f"signed mean {gaps.to_numpy().mean():+.2f}; largest {sizes.max():.2f}; neighbours swap in {len(swapped)} "
        f"seeds; shuffled {shuffled:.2f}"
    )
    if has_too_few(estimate):
        return Verdict(UNDECIDED, estimate, note=f"{TOO_FEW}; {note}")
    if swapped or above(estimate, most):
        return Verdict(HOLDS, estimate, note=note)
    return Verdict(FAILS if sizes.max() < least else UNDECIDED, estimate, note=note)


def shuffled_gap(runs: Frames, point: str, batch: int, draws: int = 1000) -> float:
    """Mean size, over seeds and random orders of the test samples, of mean over batches minus over samples, in points.

    For a whole seed, i.e. its mean over clients. Only the number of correct samples in the last, smaller batch matters.
    """
    rng, sizes = np.random.default_rng(0), []
    for _, rows in chosen_clients(runs, point).groupby("seed"):
        gaps = np.zeros(draws)
        for n, share in zip(rows["test_n"].astype(int), rows[f"test_{runs.metric.name}"], strict=True):
            correct, last, count = round(share * n), n % batch or batch, -(-n // batch)
            ends = rng.hypergeometric(correct, n - correct, last, draws)
            gaps += ((correct - ends) / batch + ends / last) / count - correct / n
        sizes.append(float(np.abs(gaps / len(rows)).mean()))
    return 100 * float(np.mean(sizes))


def swaps(first: pd.Series, second: pd.Series) -> bool:
    """Whether two swap places."""
    one, other = (np.sign(np.subtract.outer(v.to_numpy(), v.to_numpy())) for v in (first, second))
    return bool((one * other < 0).any())


def means_differ(arms: Arms, point: str, labels: Sequence[str]) -> Verdict:
    """The rankings by the plain mean over clients and by the mean over all samples differ, per seed."""
    plain = means_by_seed(arms, labels, point)
    pooled = pd.DataFrame({label: pooled_accuracy(arms[label], point).droplevel("client") for label in labels})
    flags = {int(seed): swaps(plain.loc[seed], pooled.loc[seed]) for seed in plain.index}
    gaps = ", ".join(f"{label} {(pooled[label] - plain[label]).mean():+.1f}" for label in labels)
    return property_of(flags, note=f"pooled - plain: {gaps}")


PROPERTIES: dict[str, Callable[..., Verdict]] = {
    function.__name__: function
    for function in (
        best_is_one_of,
        needs_less,
        layers_part,
        same_numbers,
        alike_overlap,
        related_overlap,
        little_trust,
        shut_out,
        others_trust,
        fewer_bytes,
        bytes_between,
        bounded_gradients,
        points_differ,
        estimators_differ,
        means_differ,
    )
}
