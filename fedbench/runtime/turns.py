"""Lets clients take turns on one engine, so that their fits are trained together.

A method's code blocks in every fit. Here each client has a greenlet, which is a function that can wait in the middle:
one runs at a time, in the order of the clients, until it requests a fit. When all wait, their fits go to the engine
together, and each continues with its own result. A finished client makes room for the next.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import torch
from greenlet import getcurrent, greenlet

from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Fit
from fedbench.engine.row_engine import RowEngine
from fedbench.module.weights import Weights

T = TypeVar("T")


class EndedError(BaseException):
    """Ends a turn because another one failed."""


class Turn(Generic[T]):
    """One client's work in progress, and its row in the stack.

    seconds: its running time, and its share of the fits in which it took part.
    """

    def __init__(self, work: Callable[[], T], ledger: Ledger, row: int) -> None:
        self.work, self.ledger, self.row, self.seconds = work, ledger, row, 0.0
        self.fit: Fit | None = None
        self.answer: Weights | BaseException | None = None
        self.error: BaseException | None = None
        self.result: T
        self._greenlet = greenlet(self._go, getcurrent())

    def run(self) -> None:
        """Let it run until it waits for a fit or is done. Called from outside."""
        with torch.enable_grad():  # whatever holds where it waits
            self._greenlet.switch()

    def ask(self, fit: Fit) -> Weights:
        """Wait for the trained weights. Called in its work."""
        self.fit, gradients = fit, torch.is_grad_enabled()
        self._greenlet.parent.switch()
        torch.set_grad_enabled(gradients)
        self.fit = None
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert self.answer is not None
        return self.answer

    def _go(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        self.fit = None


class Turns:
    """Runs pieces of work that request fits from the engine, at most `width` at a time."""

    def __init__(self, engine: RowEngine) -> None:
        self.engine = engine
        self._now: Turn | None = None
        self._begun = 0.0

    def clock(self) -> float:
        """Seconds of the running turn, without its waiting time."""
        passed = time.perf_counter() - self._begun
        return passed if self._now is None else self._now.seconds + passed

    def run(self, works: Sequence[Callable[[], T]], clients: Sequence[int]) -> list[T]:
        """Returns the results in the order of the work. An exception in one piece of work ends the others too.

        clients: those of the work. A client waits until its row is free.
        """
        engine = self.engine
        answer, ledger = engine.answer, engine.ledger
        turns = [
            Turn(work, Ledger(engine.flat.device), engine.row_of(client, place))
            for place, (work, client) in enumerate(zip(works, clients, strict=True))
        ]
        waiting, active = defaultdict[int, deque[int]](deque), list[Turn[T]]()
        for place, turn in enumerate(turns):
            waiting[turn.row].append(place)
        engine.answer = self._ask
        try:
            while active or any(waiting.values()):
                while free := self._free(waiting, active):
                    turn = turns[min(waiting[row][0] for row in free)]
                    waiting[turn.row].popleft()
                    active.append(turn)
                    self._let(turn)
                    active = [turn for turn in active if turn.fit is not None]
                self._train(active)
                for turn in active:
                    self._let(turn)
                active = [turn for turn in active if turn.fit is not None]
        finally:
            for turn in turns:
                while turn.fit is not None:
                    turn.answer = EndedError()
                    turn.run()
            engine.answer, engine.ledger, self._now = answer, ledger, None
        return [turn.result for turn in turns]

    @staticmethod
    def _free(waiting: Mapping[int, deque[int]], active: Sequence[Turn[T]]) -> set[int]:
        """Free rows that somebody waits for."""
        return {row for row, places in waiting.items() if places} - {turn.row for turn in active}

    def _let(self, turn: Turn[T]) -> None:
        self._now, self.engine.ledger, self._begun = turn, turn.ledger, time.perf_counter()
        turn.run()
        turn.seconds += time.perf_counter() - self._begun
        self._now = None
        if turn.error is not None:
            raise turn.error

    def _train(self, turns: Sequence[Turn[T]]) -> None:
        """Train the fits of all waiting turns."""
        if not turns:
            return
        begun = time.perf_counter()
        requests = [FitRequest(turn.fit, turn.ledger, turn.row) for turn in turns if turn.fit is not None]
        answers = self.engine.fit_together(requests)
        share = (time.perf_counter() - begun) / len(turns)
        for turn, answer in zip(turns, answers, strict=True):
            turn.answer, turn.seconds = answer, turn.seconds + share

    def _ask(self, fit: Fit) -> Weights:
        assert self._now is not None
        return self._now.ask(fit)
