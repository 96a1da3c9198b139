"""Failures of clients that end a run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fedbench.config.words import plural
from fedbench.errors import RunError
from fedbench.runtime.exchange import POOLED, Report

LEAST_ALIKE = 2
"""A single client that fails shows nothing in common."""


def refuse_failing_half(seed: int, reports: Sequence[Report]) -> None:
    """Raises RunError if half of the participants of round 1 fail in the same way, with the line of the first.

    reports: of all participants.
    """
    alike: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        if report.failure is not None:
            alike[report.cause].append(report)
    worst = max(alike.values(), key=len, default=[])
    if len(worst) >= max(LEAST_ALIKE, len(reports) / 2):
        who = f"{len(worst)} of {plural(len(reports), 'participant')}"
        raise RunError(f"seed {seed}, round 1: {who} fail in the same way: {worst[0].failure}", trace=worst[0].trace)


def common_failure(
    seed: int, round: int, reports: Sequence[Report], before: tuple[str, list[int]], clients: int
) -> tuple[str, list[int]]:
    """The common cause of the failures of these reports, and the clients it has hit since one last completed a fit.

    before: those of the round before. clients: of the run. Raises RunError if the cause has hit more than one client or
    the only one: further rounds would not help.
    """
    causes = {report.cause for report in reports}
    cause = causes.pop() if len(causes) == 1 else ""
    if not cause:
        return "", []
    hit = sorted({report.client for report in reports}.union(before[1] if before[0] == cause else []))
    if len(hit) >= min(2, clients) or POOLED in hit:
        who = "every client" if POOLED in hit else f"every client ({len(hit)})"
        line = f"seed {seed}, round {round}: {who} fails in the same way: {reports[0].failure}"
        raise RunError(line, trace=reports[0].trace)
    return cause, hit


def refuse_untrained(seed: int, fits: Mapping[int, str]) -> None:
    """Raises RunError if most clients that were to train never completed a fit: their scores are no result.

    fits: of every such client, why its last fit failed, or empty if one was completed.
    """
    failed = {client: reason for client, reason in fits.items() if reason}
    if len(failed) > len(fits) / 2:
        who, first = f"{len(failed)} of {plural(len(fits), 'client')}", min(failed)
        why = f"the first, client {first}: {failed[first]}"
        raise RunError(f"seed {seed}: the run is no result: {who} that were to train never completed a fit; {why}")
