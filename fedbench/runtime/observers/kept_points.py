"""Which evaluations a run keeps models, predictions or outcomes of: the last of every evaluated client."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from fedbench.runtime.exchange import Report


class KeptPoints:
    """Names the models of an exchange that have the scores of the last round.

    keeps_any: whether anything is kept. rounds: of the run. after_fit: origin of the method's models of this point
    (`Method.after_fit`). drawn: the participants of a round. with_global: whether the point `global` counts.
    """

    def __init__(
        self,
        keeps_any: bool,
        rounds: int,
        after_fit: str,
        drawn: Callable[[int], Iterable[int]],
        with_global: bool = False,
    ) -> None:
        self.keeps_any, self.rounds, self.after_fit, self._drawn = keeps_any, rounds, after_fit, drawn
        self.with_global = with_global

    def models_to_keep(self, client: int, number: int) -> Sequence[str]:
        """The models to keep of a client in this exchange, among those evaluated in it."""
        if not self.keeps_any:
            return ()
        last, ends = self.last.get(client, 0), number == self.rounds
        when = {
            "after_agg": ends,
            "global": ends and (self.with_global or self.after_fit == "global"),
            "after_fit": last == number + 1,
            "idle_model": last <= number,
        }
        return [name for name, now in when.items() if now]

    def of_reports(self, number: int, reports: Sequence[Report]) -> Iterator[tuple[Report, str, str]]:
        """The reports of an exchange, with every model to keep and every point that it is kept for."""
        for report in reports:
            for name in self.models_to_keep(report.client, number):
                for point in self.points(name):
                    yield report, name, point

    def points(self, name: str) -> list[str]:
        """The evaluation points that use this model."""
        if name == "global":
            return ["after_fit"] * (self.after_fit == "global") + ["global"] * self.with_global
        if name != "after_agg":
            return ["after_fit"]
        return ["after_agg", "after_fit"] if self.after_fit == "after_agg" else ["after_agg"]

    @cached_property
    def last(self) -> dict[int, int]:
        """The last round in which each client trains."""
        return {client: round for round in range(1, self.rounds + 1) for client in self._drawn(round)}
