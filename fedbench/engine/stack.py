"""The engine that steps several clients at once: their weights are the rows of matrices `[K, N]`.

K is the same in every step, whoever takes part, and a client's row follows from its number, because the position of a
row may affect how its products are summed. So its bits depend on K and its number only, not on the other rows. Batches
of the run's size are stepped together; smaller batches at the end of an epoch are stepped alone. With K = 1 every step
is one client's, by the operations of the loop.
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
"""Exceptions of users' code; a model that calls sys.exit must not end the run."""


class Stack(Loop):
    """Fits of several clients at once.

    answer: how a fit gets its weights: at once, or together with alternating clients. remarks: why fits were run by
    the loop.
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
        """The trained weights of every fit, or its error. No two fits have the same row."""
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
        """Fits of one kind. If one fails, each is run alone, so that its result does not depend on the others."""
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
