"""Which kinds of chance the intervals of a study cover, and how many test samples stand behind its scores."""

from collections.abc import Sequence

import numpy as np

from fedbench.config.words import range_of
from fedbench.report.study import Study
from fedbench.results.sample_error import Evidence
from fedbench.results.statistics import Interval

SEEDS, BOTH = "over seeds", "over seeds and test samples"


def kind_of(found: Sequence[Interval | None]) -> str:
    """`over seeds and test samples` if all of these intervals that exist are, else `over seeds`."""
    known = [one for one in found if one is not None and one.low is not None]
    return BOTH if known and all(one.samples is not None for one in known) else SEEDS


def over(study: Study) -> str:
    """The same of the scores of a study at its point."""
    return BOTH if covers_samples(study) else SEEDS


def covers_samples(study: Study) -> bool:
    """Whether the choice of test samples is in the intervals of a study's scores and differences."""
    if study.race is not None:
        return study.race.over_samples and bool(study.race.look)
    found = [study.scores.score(label, study.point) for label in study.ordered if len(study.last_rows(label))]
    return kind_of(found) == BOTH


def evidence_lines(study: Study) -> list[str]:
    """What intervals cover, and the test samples behind them; none before there are intervals."""
    labels = [label for label in study.ordered if len(study.last_rows(label)) > 1]
    if not labels or (study.race is not None and not study.race.look):
        return []
    if not covers_samples(study):
        return [
            "Intervals are over seeds alone: outcomes of the test samples were not kept, so what comes from the choice "
            "of the test samples is left out where seeds share some."
        ]
    found = [known for label in labels if (known := study.scores.evidence(label, study.point)) is not None]
    if not found:
        return [f"Intervals are {BOTH}."]
    most = max(found, key=lambda known: known.samples)
    return [f"Intervals are {BOTH}, for these clients. {samples_text(most)}."]


def samples_text(found: Evidence) -> str:
    """`Behind them stand 1797 different test samples (113 positive), 360 (22) in each seed`."""
    positive = "" if found.positive is None else f" ({found.positive} positive)"
    each = "" if found.positive_per_seed is None else f" ({found.positive_per_seed:.4g})"
    if found.samples == found.per_seed:
        return f"Behind them stand {found.samples} test samples{positive}, the same in all seeds"
    return (
        f"Behind them stand {found.samples} different test samples{positive}, {found.per_seed:.4g}{each} in each seed"
    )


def client_evidence(study: Study) -> list[tuple[str, str, str]]:
    """Every client with the number of its test samples in a seed, and of the positive ones among them, or "".

    Of the first method with outcomes, as all are tested on the same samples; none if there are no outcomes.
    """
    known = next((found for label in study.ordered if (found := study.scores.outcomes.get(label))), {})
    seeds = [outcomes for (_, point), outcomes in known.items() if point == study.point]
    clients = np.unique(np.concatenate([np.zeros(0, np.int64), *(found.clients for found in seeds)])).tolist()
    names = (next(iter(study.partition.values()), None) or {}).get("names") or []

    def counts(hits: Sequence[np.ndarray]) -> list[str]:
        by_seed = [np.bincount(own, minlength=max(clients) + 1) for own in hits]
        return [range_of([int(count[client]) for count in by_seed]) for client in clients]

    if not clients:
        return []
    samples = counts([found.clients for found in seeds])
    hits = [found.clients[found.positive] for found in seeds if found.positive is not None]
    positive = counts(hits) if len(hits) == len(seeds) else [""] * len(clients)
    called = [names[client] if client < len(names) and names[client] else f"client {client}" for client in clients]
    return list(zip(called, samples, positive, strict=True))
