"""Lets clients take turns on one engine, so that their fits are trained together.

A method's code blocks in every fit. Here each client has a greenlet, which is a function that can wait in the middle:
one runs at a time, in the order of the clients, until it requests a fit. When enough wait, their fits go to the engine
together, and each continues with its own result. A finished client makes room for the next.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from greenlet import getcurrent, greenlet

from fedbench.engine.cursor import FitRequest
from fedbench.engine.engine import Ledger, plain_modes
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
        self.ledger, self.row, self.seconds = ledger, row, 0.0
        self.fit: Fit | None = None
        self.answer: Weights | BaseException | None = None
        self.error: BaseException | None = None
        self.result: T
        self._greenlet = greenlet(partial(self._go, work), getcurrent())

    def run(self) -> None:
        """Let it run until it waits for a fit or is done. Called from outside."""
        self._greenlet.switch()

    def ask(self, fit: Fit) -> Weights:
        """Wait for the trained weights. Called in its work, in PyTorch's plain modes, which all greenlets share."""
        self.fit = fit
        self._greenlet.parent.switch()
        self.fit = None
        answer, self.answer = self.answer, None  # is not kept until the others are done
        if isinstance(answer, BaseException):
            raise answer
        assert answer is not None
        return answer

    def _go(self, work: Callable[[], T]) -> None:
        try:
            self.result = work()
        except BaseException as error:
            self.error = error
        self.fit = None


class Turns:
    """Runs pieces of work that request fits from the engine, at most `width` at a time.

    If the engine takes fits in smaller lots, pieces of work go on while fits of others are under way.
    """

    def __init__(self, engine: RowEngine) -> None:
        self.engine = engine
        self._now: Turn[Any] | None = None
        self._begun = 0.0

    def clock(self) -> float:
        """Seconds of the running turn, without its waiting time."""
        passed = time.perf_counter() - self._begun
        return passed if self._now is None else self._now.seconds + passed

    def run(self, works: Sequence[Callable[[], T]], clients: Sequence[int]) -> list[T]:
        """Returns the results in the order of the work. An exception in one piece of work ends the others too.

        clients: those of the work. A client waits until its row is free.
        """
        with plain_modes(self.engine.flat.device):
            return self._run(works, clients)

    def _run(self, works: Sequence[Callable[[], T]], clients: Sequence[int]) -> list[T]:
        engine = self.engine
        answer, ledger = engine.answer, engine.ledger
        turns = [
            Turn(work, Ledger(engine.flat.device), engine.row_of(client, index))
            for index, (work, client) in enumerate(zip(works, clients, strict=True))
        ]
        waiting = defaultdict[int, deque[int]](deque)
        for index, turn in enumerate(turns):
            waiting[turn.row].append(index)
        free = set(waiting)  # rows that nobody has and somebody waits for
        ready, begun = list[Turn[T]](), deque[tuple[list[Turn[T]], BegunFits]]()
        engine.answer = self._ask
        try:
            while True:
                if free and len(ready) < engine.lot:
                    running = [turns[min(waiting[row][0] for row in free)]]
                    waiting[running[0].row].popleft()
                    free.remove(running[0].row)
                elif ready and (len(ready) >= engine.lot or not begun):
                    begun.append((ready, self._begin(ready)))
                    ready = []
                    continue
                elif begun:
                    running = [*self._end(*begun.popleft())]
                else:
                    return [turn.result for turn in turns]
                self._let_run(running)
                ready += [turn for turn in running if turn.fit is not None]
                free.update(turn.row for turn in running if turn.fit is None and waiting[turn.row])
        finally:
            try:
                for _, fits in begun:
                    engine.wait(fits)
                for turn in turns:
                    while turn.fit is not None:
                        turn.answer = EndedError()
                        turn.run()
            finally:
                engine.answer, engine.ledger, self._now = answer, ledger, None

    def _let_run(self, turns: Sequence[Turn[T]]) -> None:
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
        with self._share_seconds(turns):
            return self.engine.begin_together(
                [FitRequest(turn.fit, turn.ledger, turn.row) for turn in turns if turn.fit is not None]
            )

    def _end(self, turns: Sequence[Turn[T]], begun: BegunFits) -> Sequence[Turn[T]]:
        """The turns, with their trained weights."""
        with self._share_seconds(turns):
            try:
                answers = self.engine.end_together(begun)
            except BaseException:
                self.engine.wait(begun)
                raise
            for turn, answer in zip(turns, answers, strict=True):
                turn.answer = answer
        return turns

    @contextmanager
    def _share_seconds(self, turns: Sequence[Turn[T]]) -> Iterator[None]:
        """Adds the seconds of a block to these turns, the same share to each."""
        begun = time.perf_counter()
        yield
        share = (time.perf_counter() - begun) / len(turns)
        for turn in turns:
            turn.seconds += share

    def _ask(self, fit: Fit) -> Weights:
        assert self._now is not None
        return self._now.ask(fit)
