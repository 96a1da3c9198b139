"""Lets clients take turns on one engine, so that their fits are trained together.

A method's code blocks in every fit. Here each client has a greenlet, which is a function that can wait in the middle:
one runs at a time, in the order of the clients, until it requests a fit. When all wait, their fits go to the engine
together, and each continues with its own result. A finished client makes room for the next.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from greenlet import getcurrent, greenlet

from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Fit
from fedbench.engine.row_engine import BegunFits, RowEngine
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
    """Runs pieces of work that request fits from the engine, at most `width` at a time.

    If the engine takes fits in smaller lots, pieces of work go on while fits of others are under way.
    """

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
        waiting = defaultdict[int, deque[int]](deque)
        for place, turn in enumerate(turns):
            waiting[turn.row].append(place)
        free = set(waiting)  # rows that nobody has and somebody waits for
        ready, begun = list[Turn[T]](), deque[tuple[list[Turn[T]], BegunFits]]()
        engine.answer = self._ask
        try:
            while True:
                if free and len(ready) < engine.lot:
                    own = [turns[min(waiting[row][0] for row in free)]]
                    waiting[own[0].row].popleft()
                    free.remove(own[0].row)
                elif ready and (len(ready) >= engine.lot or not begun):
                    begun.append((ready, self._begin(ready)))
                    ready = []
                    continue
                elif begun:
                    self._end(*begun[0])
                    own, _ = begun.popleft()
                else:
                    return [turn.result for turn in turns]
                self._let(own)
                ready += [turn for turn in own if turn.fit is not None]
                free.update(turn.row for turn in own if turn.fit is None and waiting[turn.row])
        finally:
            for _, fits in begun:
                engine.end_together(fits)  # nobody may write to their rows before
            for turn in turns:
                while turn.fit is not None:
                    turn.answer = EndedError()
                    turn.run()
            engine.answer, engine.ledger, self._now = answer, ledger, None

    def _let(self, turns: Sequence[Turn[T]]) -> None:
        """Let them run, one after another, until they wait for a fit or are done."""
        for turn in turns:
            self._now, self.engine.ledger, self._begun = turn, turn.ledger, time.perf_counter()
            turn.run()
            turn.seconds += time.perf_counter() - self._begun
            self._now = None
            if turn.error is not None:
                raise turn.error

    def _begin(self, turns: Sequence[Turn[T]]) -> BegunFits:
        """Begin the fits that they wait for."""
        with self._shared(turns):
            return self.engine.begin_together(
                [FitRequest(turn.fit, turn.ledger, turn.row) for turn in turns if turn.fit is not None]
            )

    def _end(self, turns: Sequence[Turn[T]], begun: BegunFits) -> None:
        """Wait for their fits."""
        with self._shared(turns):
            for turn, answer in zip(turns, self.engine.end_together(begun), strict=True):
                turn.answer = answer

    @contextmanager
    def _shared(self, turns: Sequence[Turn[T]]) -> Iterator[None]:
        """Adds the seconds of a block to these turns, the same share to each."""
        begun = time.perf_counter()
        yield
        share = (time.perf_counter() - begun) / len(turns)
        for turn in turns:
            turn.seconds += share

    def _ask(self, fit: Fit) -> Weights:
        assert self._now is not None
        return self._now.ask(fit)
