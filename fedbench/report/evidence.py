"""Which kinds of chance the intervals of a study cover, and how many test samples stand behind its scores."""

from collections.abc import Sequence

import numpy as np

from fedbench.config.words import range_of
from fedbench.report.study import Study
from fedbench.results.sample_error import Evidence
from fedbench.results.statistics import Interval

SEEDS, BOTH = "over seeds", "over seeds and test samples"


def kind_of(intervals: Sequence[Interval | None]) -> str:
    """`over seeds and test samples` if all of these intervals that exist are, else `over seeds`."""
    known = [interval for interval in intervals if interval is not None and interval.low is not None]
    return BOTH if known and all(interval.samples is not None for interval in known) else SEEDS


def over(study: Study) -> str:
    """The kinds of chance that the intervals of a study's scores at its point cover."""
    return BOTH if covers_samples(study) else SEEDS


def covers_samples(study: Study) -> bool:
    """Whether the choice of test samples is in the intervals of a study's scores and differences."""
    if study.sequential_test is not None:
        return study.sequential_test.over_samples and bool(study.sequential_test.look)
    scores = [study.scores.score(label, study.point) for label in study.ordered if len(study.last_rows(label))]
    return kind_of(scores) == BOTH


def evidence_lines(study: Study) -> list[str]:
    """Sentences on what intervals cover, and the test samples behind them; none before there are intervals."""
    labels = [label for label in study.ordered if len(study.last_rows(label)) > 1]
    if not labels or (study.sequential_test is not None and not study.sequential_test.look):
        return []
    if not covers_samples(study):
        return [
            "Intervals are over seeds alone: outcomes of the test samples were not kept, so what comes from the choice "
            "of the test samples is left out where seeds share some."
        ]
    known = [study.scores.evidence(label, study.point) for label in labels]
    if not any(known):
        return [f"Intervals are {BOTH}."]
    most = max(filter(None, known), key=lambda evidence: evidence.samples)
    return [f"Intervals are {BOTH}, for these clients. {samples_text(most)}."]


def samples_text(known: Evidence) -> str:
    """`Behind them stand 1797 different test samples (113 positive); a seed has 359.5 (22.25) of them on average`."""
    positive = "" if known.positive is None else f" ({known.positive} positive)"
    each = "" if known.positive_per_seed is None else f" ({known.positive_per_seed:.4g})"
    if known.samples == known.per_seed:
        return f"Behind them stand {known.samples} test samples{positive}, the same in all seeds"
    different = f"Behind them stand {known.samples} different test samples{positive}"
    return f"{different}; a seed has {known.per_seed:.4g}{each} of them on average"


def client_evidence(study: Study) -> list[tuple[str, str, str]]:
    """Every client with the number of its test samples in a seed, and of the positive ones among them, or "".

    Of the first method with outcomes, as all are tested on the same samples; none if there are no outcomes.
    """
    first = next((known for label in study.ordered if (known := study.scores.outcomes.get(label))), {})
    seeds = [outcomes for (_, point), outcomes in first.items() if point == study.point]
    clients = np.unique(np.concatenate([np.zeros(0, np.int64), *(seed.clients for seed in seeds)])).tolist()
    names = (next(iter(study.partition.values()), None) or {}).get("names") or []

    def counts(hits: Sequence[np.ndarray]) -> list[str]:
        by_seed = [np.bincount(seed, minlength=max(clients) + 1) for seed in hits]
        return [range_of([int(count[client]) for count in by_seed]) for client in clients]

    if not clients:
        return []
    samples = counts([seed.clients for seed in seeds])
    hits = [seed.clients[seed.positive] for seed in seeds if seed.positive is not None]
    positive = counts(hits) if len(hits) == len(seeds) else [""] * len(clients)
    called = [names[client] if client < len(names) and names[client] else f"client {client}" for client in clients]
    return list(zip(called, samples, positive, strict=True))
