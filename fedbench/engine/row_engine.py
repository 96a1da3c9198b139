"""The base of engines that keep the weights of several clients in rows, and train them at the same time."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from fedbench.engine.cursor import FitRequest
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group, Kind, check_engine, kind_of
from fedbench.engine.loop import Loop
from fedbench.engine.row_step import UnsupportedFitError
from fedbench.engine.rows import Rows
from fedbench.module.weights import Weights

FAILURES = (Exception, SystemExit)
"""Exceptions of users' code; a model that calls sys.exit must not end the run."""


class RowEngine(Loop):
    """Fits of several clients at once, in groups of one kind.

    aligned: see `Rows`. answer: how a fit gets its weights: at once, or together with alternating clients. remarks: why
    fits were run by the loop.
    """

    aligned: ClassVar[bool] = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.width, self.rows = self.train.width, Rows(self.flat, self.train.width, self.aligned)
        self.answer: Callable[[Fit], Weights] = self._answer_at_once
        self.refusals: dict[Any, UnsupportedFitError | None] = {}
        self.remarks: dict[str, None] = {}

    @abstractmethod
    def group(self, kind: Kind, like: Fit) -> Group[Any]:
        """Trains fits of one kind. like: one of them."""

    def row_of(self, client: int, place: int) -> int:
        """The row of a client, which is at this place among those that train."""
        return client % self.width

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
        refusal = self._refusal()
        for place, request in enumerate(requests):
            try:
                if refusal is not None:
                    raise refusal
                groups[kind_of(self, request.fit)].append(place)
            except UnsupportedFitError as error:
                self._remark(error)
                answers[place] = self._fit_by_loop(request)
        for kind, places in groups.items():
            answers.update(zip(places, self._fit_group(kind, [requests[place] for place in places]), strict=True))
        return [answers[place] for place in range(len(requests))]

    def _refusal(self) -> UnsupportedFitError | None:
        try:
            check_engine(self)
        except UnsupportedFitError as error:
            return error
        return None

    def _fit_group(self, kind: Kind, requests: Sequence[FitRequest]) -> list[Weights | BaseException]:
        """Fits of one kind. If one fails, each is run alone, so that its result does not depend on the others."""
        try:
            return [*self.group(kind, requests[0].fit).train(requests)]
        except FAILURES as error:
            if len(requests) > 1:
                return [answer for request in requests for answer in self._fit_group(kind, [request])]
            if isinstance(error, UnsupportedFitError):
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

    def _remark(self, error: UnsupportedFitError) -> None:
        engine = self.train.engine
        self.remarks[f"train.engine = {engine}: fits are done one client after another: {error}"] = None
