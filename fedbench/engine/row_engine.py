"""The base of engines that keep the weights of several clients in rows, and train them at the same time."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fedbench.engine.cursor import FitRequest
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group
from fedbench.engine.kind import Kind, engine_refusal, fit_kind
from fedbench.engine.loop import Loop
from fedbench.engine.row_step import UnsupportedFitError
from fedbench.engine.rows import Rows
from fedbench.module.weights import Weights

MOST_KINDS = 8
"""Kinds of fits whose compiled or captured steps are kept."""

FAILURES = (Exception, SystemExit)
"""Exceptions of users' code; a model that calls sys.exit must not end the run."""


Answer = Weights | BaseException
"""The trained weights of a fit, or its error."""


class RowEngine(Loop):
    """Fits of several clients at once, in groups of one kind.

    aligned: see `Rows`. optimizers: those whose steps it takes; takes_rules: also where a method sets the optimiser.
    widens: whether clients of other sizes share a step. lot: the number of fits that begin together, if so many wait.
    answer: how a fit gets its weights: at once, or
    together with alternating clients. remarks: why fits were run by the loop.
    """

    aligned: ClassVar[bool] = False
    optimizers: ClassVar[Sequence[str]] = ("sgd",)
    takes_rules: ClassVar[bool] = False
    widens: ClassVar[bool] = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.width, self.rows = self.train.width, Rows(self.flat, self.train.width, self.aligned)
        self.lot = self.width
        self.answer: Callable[[Fit], Weights] = self._answer_at_once
        self.refusals: dict[Any, str | None] = {}
        self.remarks: dict[str, None] = {}
        self._groups: dict[Kind, Group] = {}

    @abstractmethod
    def new_group(self, kind: Kind, like: Fit) -> Group:
        """Trains fits of one kind. like: one of them."""

    def group(self, kind: Kind, like: Fit) -> Group:
        """The group of a kind, of which the last few are kept."""
        kind = replace(kind, rate=0.0)  # is read from memory at every step
        group = self._groups.pop(kind, None) or self.new_group(kind, like)
        while len(self._groups) >= MOST_KINDS:
            del self._groups[next(iter(self._groups))]
        self._groups[kind] = group
        return group

    def row_of(self, client: int, index: int) -> int:
        """The row of a client; index: its place among those that train."""
        return client % self.width

    def _fit(self, fit: Fit) -> Weights:
        # A trial is not worth the seconds of a compilation or a capture.
        return super()._fit(fit) if fit.amount.trial else self.answer(fit)

    def _answer_at_once(self, fit: Fit) -> Weights:
        (answer,) = self.fit_together([FitRequest(fit, self.ledger)])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def fit_together(self, requests: Sequence[FitRequest]) -> list[Answer]:
        """The trained weights of every fit, or its error. No two fits have the same row."""
        return self.end_together(self.begin_together(requests))

    def begin_together(self, requests: Sequence[FitRequest]) -> "BegunFits":
        """Begins fits, whose rows nobody else uses until they have ended."""
        begun, groups = BegunFits(requests), defaultdict[Kind, list[int]](list)
        refusal = engine_refusal(self)
        for index, request in enumerate(requests):
            try:
                if refusal is not None:
                    raise UnsupportedFitError(refusal)
                groups[fit_kind(self, request.fit)].append(index)
            except UnsupportedFitError as error:
                self._remark(error)
                begun.answers[index] = self.fit_by_loop(request)
        try:
            for kind, indices in groups.items():
                group_requests = [requests[index] for index in indices]
                try:
                    group = self.group(kind, group_requests[0].fit)
                    begun.groups.append((group, indices, group.begin(group_requests)))
                except FAILURES as error:
                    begun.answers.update(zip(indices, self._fit_apart(kind, group_requests, error), strict=True))
        except BaseException:
            self.wait(begun)
            raise
        return begun

    def wait(self, begun: "BegunFits") -> None:
        """Has the device's next work wait for fits that nobody will ask for, because something has failed."""
        for group, _, cursors in begun.groups:
            group.wait(cursors)

    def end_together(self, begun: "BegunFits") -> list[Answer]:
        """The answers to fits that have begun."""
        answers = begun.answers
        for group, indices, cursors in begun.groups:
            try:
                answers.update(zip(indices, group.end(cursors), strict=True))
            except FAILURES as error:
                group_requests = [begun.requests[index] for index in indices]
                answers.update(zip(indices, self._fit_apart(group.kind, group_requests, error), strict=True))
        return [answers[index] for index in range(len(begun.requests))]

    def _fit_apart(self, kind: Kind, requests: Sequence[FitRequest], error: BaseException) -> list[Answer]:
        """Fits of one kind of which one has failed, each alone, so that its result does not depend on the others."""
        if len(requests) == 1:
            if isinstance(error, UnsupportedFitError):
                self._remark(error)
            return [self.fit_by_loop(requests[0])]
        answers: list[Answer] = []
        for request in requests:
            try:
                group = self.group(kind, request.fit)
                answers += group.end(group.begin([request]))
            except FAILURES as failure:
                answers += self._fit_apart(kind, [request], failure)
        return answers

    def fit_by_loop(self, request: FitRequest) -> Answer:
        """The trained weights of a fit by the loop, or its error."""
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


@dataclass
class BegunFits:
    """Fits under way. groups: those in rows, with their places among the requests; answers: of the others, by place."""

    requests: Sequence[FitRequest]
    groups: list[tuple[Group, list[int], Sequence[Any]]] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
