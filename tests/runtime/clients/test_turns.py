"""Clients that take turns: in their order, one at a time, and their fits meet."""

import os
import signal
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
import torch

from fedbench.config import TrainConfig
from fedbench.engine.engine import Ledger
from fedbench.engine.fit import Fit
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError
from fedbench.results.reader import Records
from fedbench.runtime.clients.turns import Turns
from tests.engine.conftest import Blobs, Net
from tests.runtime.accidents import CLIENT, clumsy
from tests.runtime.rounds import play

WIDTH = 3


class Meetings(Learner):
    """Notes how many fits came at a time."""

    def __init__(self) -> None:
        super().__init__(Net(), TrainConfig(engine="compiled", width=WIDTH, epochs=1, batch_size=4), optimizer="sgd")
        self.met: list[int] = []
        assert self.row_engine is not None
        train = self.row_engine.begin_together
        self.row_engine.begin_together = lambda asked: (self.met.append(len(asked)), train(asked))[1]  # type: ignore[method-assign]


@pytest.fixture
def learner() -> Meetings:
    return Meetings()


def fit(learner: Learner, key: int) -> Fit:
    return Fit(learner.initial(), Blobs(8, key=(key,)))


def test_one_runs_at_a_time_in_order_and_who_is_done_makes_place(learner):
    told: list[Any] = []

    def work(number: int, fits: int) -> Any:
        for turn in range(fits):
            told.append((number, turn))
            learner.fit(fit(learner, number))
        told.append((number, "end"))
        return number, learner.ledger.steps

    asked = [2, 1, 1, 0, 1]
    found = Turns(learner.row_engine).run(
        [lambda n=n, fits=fits: work(n, fits) for n, fits in enumerate(asked)], range(5)
    )
    assert found == [(n, 2 * fits) for n, fits in enumerate(asked)]
    first = [(0, 0), (1, 0), (2, 0)]
    second = [(0, 1), (1, "end"), (2, "end"), (3, 0)]
    assert told[:3] == first
    assert [entry for entry in told if entry[0] == 0] == [(0, 0), (0, 1), (0, "end")]
    assert set(second) - {(3, 0)} <= set(told)
    assert learner.met == [3, 2]


def test_everyone_has_an_account_and_a_clock_of_his_own(learner, monkeypatch):
    """Others do not count the time in which they wait."""
    turns, now = Turns(learner.row_engine), [0.0]
    monkeypatch.setattr("fedbench.runtime.clients.turns.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def work(number: int) -> Any:
        begun = turns.clock()
        learner.fit(fit(learner, number))
        now[0] += 0.5 if number == 1 else 0.0
        return learner.ledger, turns.clock() - begun

    before = learner.ledger
    (a, quick), (b, slow), (c, last) = turns.run([lambda n=n: work(n) for n in range(3)], range(3))
    assert len({id(before), id(a), id(b), id(c)}) == 4
    assert learner.ledger is before
    assert (quick, slow, last) == (0.0, 0.5, 0.0)


def test_clients_go_on_while_the_fits_of_others_are_under_way(learner):
    """An engine that takes fits in smaller lots, as on a GPU; a fit more changes nothing."""
    engine, told = learner.row_engine, list[Any]()
    begin, end = engine.begin_together, engine.end_together
    engine.lot = 2
    engine.begin_together = lambda asked: (told.append(("begin", [one.row for one in asked])), begin(asked))[1]
    engine.end_together = lambda fits: (told.append(("end", [one.row for one in fits.requests])), end(fits))[1]

    def work(number: int) -> Any:
        for turn in range(2 if number == 0 else 1):
            told.append(number)
            trained = learner.fit(Fit(learner.initial(), Blobs(8, key=(number, turn))))
        return trained

    found = Turns(engine).run([partial(work, number) for number in range(5)], range(5))
    assert told[:6] == [0, 1, ("begin", [0, 1]), 2, ("end", [0, 1]), 0]
    assert told[6:9] == [("begin", [2, 0]), 4, ("end", [2, 0])]
    assert {entry for entry in told if isinstance(entry, int)} == set(range(5))
    engine.lot = 3
    again = Turns(engine).run([partial(work, number) for number in range(5)], range(5))
    for one, other in zip(found, again, strict=True):
        assert torch.allclose(one.params, other.params)


@pytest.mark.parametrize("who", [0, 1, 2])
def test_fits_under_way_end_before_an_error_is_raised(who, learner):
    """Nobody may write to their rows in the meantime."""
    engine, under_way = learner.row_engine, set[int]()
    begin, end, wait = engine.begin_together, engine.end_together, engine.wait
    rows = lambda asked: {one.row for one in asked}  # noqa: E731
    engine.lot = 1
    engine.begin_together = lambda asked: (under_way.update(rows(asked)), begin(asked))[1]
    engine.end_together = lambda fits: (under_way.difference_update(rows(fits.requests)), end(fits))[1]
    engine.wait = lambda fits: (under_way.difference_update(rows(fits.requests)), wait(fits))[1]

    def work(number: int) -> None:
        for _ in range(2):
            learner.fit(fit(learner, number))
            if number == who:
                raise ConfigError("no more")

    with pytest.raises(ConfigError, match="no more"):
        Turns(engine).run([partial(work, number) for number in range(3)], range(3))
    assert not under_way


def test_gradients_are_off_where_one_waits_and_nowhere_else(learner):
    def work(off: bool) -> Any:
        before = torch.is_grad_enabled()
        with torch.set_grad_enabled(not off):
            trained = learner.fit(fit(learner, 0))
            inside = torch.is_grad_enabled()
        return before, inside, torch.is_grad_enabled(), trained

    with torch.no_grad():
        found = Turns(learner.row_engine).run([partial(work, off) for off in (True, False, True)], range(3))
        assert not torch.is_grad_enabled()
    assert [modes for *modes, _ in found] == [[True, False, True], [True, True, True], [True, False, True]]
    assert all(torch.equal(trained.params, found[0][3].params) for *_, trained in found)
    assert learner.met == [3]


def test_fits_do_not_depend_on_the_modes_in_which_others_wait(learner):
    def work(mode: Any) -> Any:
        with mode() if mode else nullcontext():
            trained = learner.fit(fit(learner, 0))
            inside = torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()
        return trained, inside, torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()

    autocast = partial(torch.autocast, "cpu", torch.bfloat16)
    alone = Turns(learner.row_engine).run([partial(work, None)], [0])[0][0]
    found = Turns(learner.row_engine).run([partial(work, m) for m in (autocast, torch.inference_mode, None)], range(3))
    assert [inside for _, inside, *_ in found] == [(True, False), (False, True), (False, False)]
    assert [after for *_, after, _ in found] == [*(after for *_, after in found)] == [False] * 3
    for trained, *_ in found:
        torch.testing.assert_close(trained.params, alone.params, rtol=0, atol=1e-7)


def test_trained_weights_are_not_kept_until_all_are_done(learner):
    kept, most = WeakSet[Any](), list[int]()

    def work(number: int) -> None:
        kept.add(learner.fit(fit(learner, number)))
        most.append(len(kept))

    Turns(learner.row_engine).run([partial(work, number) for number in range(12)], range(12))
    assert max(most) <= 2 * WIDTH


def test_a_second_interrupt_leaves_the_engine_as_it_was(learner):
    engine = learner.row_engine

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    engine.end_together = engine.wait = interrupted
    with pytest.raises(KeyboardInterrupt):
        Turns(engine).run([partial(learner.fit, fit(learner, 0))], [0])
    assert engine.answer == engine._answer_at_once


def test_a_fit_outside_of_turns_is_done_at_once(learner):
    learner.engine.ledger = Ledger(learner.device)
    learner.fit(fit(learner, 0))
    assert learner.met == [1]
    assert learner.ledger.steps == 2


@pytest.fixture
def interruptible():
    """What a shell starts in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_whoever_is_at_work_too(learner):
    """Nobody trains on in a thread of its own beside a notebook's next cell."""
    told = []

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)  # which the main thread gets
            for number in range(3):
                learner.fit(fit(learner, number))
                told.append(number)
        finally:
            told.append("end")

    turns = Turns(learner.row_engine)
    with pytest.raises(KeyboardInterrupt):
        turns.run([work, work], [0, 1])
    assert told == ["end"]
    assert turns.run([lambda: 5], [0]) == [5]


def test_a_client_waits_until_its_row_is_free(learner):
    """Clients 0, 2 and 4 have a row in common at a width of 2; who else is there has the other one."""
    rows: list[list[int]] = []
    learner.row_engine.width, train = 2, learner.row_engine.begin_together
    learner.row_engine.begin_together = lambda asked: (rows.append([one.row for one in asked]), train(asked))[1]  # type: ignore
    work = lambda number: learner.fit(fit(learner, number)) and number  # noqa: E731
    assert Turns(learner.row_engine).run([partial(work, n) for n in (0, 2, 4, 1)], (0, 2, 4, 1)) == [0, 2, 4, 1]
    assert rows == [[0, 1], [0], [0]]


def test_what_one_raises_ends_the_others(learner):
    ended = []

    def waits(number: int) -> None:
        try:
            learner.fit(fit(learner, number))
            learner.fit(fit(learner, number))
        finally:
            ended.append(number)

    def fails() -> None:
        learner.fit(fit(learner, 9))
        raise ConfigError("no more")

    turns = Turns(learner.row_engine)
    with pytest.raises(ConfigError, match="no more"):
        turns.run([lambda: waits(0), fails, lambda: waits(2), lambda: waits(3)], range(4))
    assert sorted(ended) == [0, 2]
    assert turns.run([lambda: 5], [0]) == [5], "and can be used again"
    learner.fit(fit(learner, 0))


def test_a_client_that_fails_leaves_the_others_as_they_are(tmp_path):
    asked = clumsy("fit")
    play(asked, tmp_path / "a")
    train = asked.train.model_copy(update={"engine": "compiled", "width": 4})
    play(asked.model_copy(update={"train": train}), tmp_path / "b")
    a, b = (Records(tmp_path / name).metrics() for name in "ab")
    assert list(a["failed"]) == list(b["failed"])
    assert any(client == CLIENT for failed in b["failed"] for client, _ in failed)
