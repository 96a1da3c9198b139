"""The engine of several clients in one gradient step: their numbers are the rows of matrices `[K, N]`.

K is the same in every step, whoever takes part, and a client has the same row in all of them, by its number: where a
row lies may decide how its products are summed up. So its bits depend on K and its number, and on nothing in the other
rows. Batches of the run's size are stepped together, each client's next one with those of the others; what is left at
the end of an epoch is stepped alone. With K = 1 every step is one client's, by the operations of the loop.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from fedbench.engine.cursor import FitRequest
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group, Kind, kind_of
from fedbench.engine.loop import Loop
from fedbench.engine.row_step import CannotStackError
from fedbench.engine.rows import Rows
from fedbench.module.weights import Weights

FAILURES = (Exception, SystemExit)
"""What users' code may raise; a model that calls sys.exit must not end the run."""


class Stack(Loop):
    """Fits of several clients at once.

    answer: how a fit gets its weights: at once, or together with those of clients that take turns. remarks: why fits
    were done by the loop.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.width, self.rows = self.train.width, Rows(self.flat, self.train.width)
        self.answer: Callable[[Fit], Weights] = self._answer_at_once
        self.refusals: dict[Any, CannotStackError | None] = {}
        self.remarks: dict[str, None] = {}

    def _fit(self, fit: Fit) -> Weights:
        return self.answer(fit)

    def _answer_at_once(self, fit: Fit) -> Weights:
        (answer,) = self.fit_together([FitRequest(fit, self.ledger)])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def fit_together(self, requests: Sequence[FitRequest]) -> list[Weights | BaseException]:
        """The trained weights of every fit, or why it has none. No two of them have the same row."""
        answers: dict[int, Weights | BaseException] = {}
        groups: dict[Kind, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            try:
                groups[kind_of(self, request.fit)].append(place)
            except CannotStackError as error:
                self._remark(error)
                answers[place] = self._fit_by_loop(request)
        for kind, places in groups.items():
            answers.update(zip(places, self._fit_group(kind, [requests[place] for place in places]), strict=True))
        return [answers[place] for place in range(len(requests))]

    def _fit_group(self, kind: Kind, requests: Sequence[FitRequest]) -> list[Weights | BaseException]:
        """Fits of one kind. What becomes of one must not depend on the others: where one fails, each is tried alone."""
        try:
            return [*Group(self, self.rows, kind, requests, self.refusals).train()]
        except FAILURES as error:
            if len(requests) > 1:
                return [answer for request in requests for answer in self._fit_group(kind, [request])]
            if isinstance(error, CannotStackError):
                self._remark(error)
            return [self._fit_by_loop(requests[0])]

    def _fit_by_loop(self, request: FitRequest) -> Weights | BaseException:
        before, self.ledger = self.ledger, request.ledger
        try:
            return super()._fit(request.fit)
        except FAILURES as error:
            return error
        finally:
            self.ledger = before

    def _remark(self, error: CannotStackError) -> None:
        self.remarks[f"train.engine = stack: fits are done one client after another: {error}"] = None
