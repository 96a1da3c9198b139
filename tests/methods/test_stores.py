"""What a method's code keeps beside declared fields is seen, and what only looks like it is not."""

import functools
import itertools
import logging
import random
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fedbench import methods
from fedbench.methods.base import Method
from fedbench.methods.scaffold import SCAFFOLD
from fedbench.methods.stores import MOST_ITEMS, Stores, spaces_of
from fedbench.module.weights import Weights


class Thing:
    """An object of the user."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}


VALUES: dict[str, Any] = {}
NUMBER, WORDS, NOT_A_NUMBER = 1000, ("a", "b"), float("nan")
LISTED, NAMED, KNOWN, LAST = [1], defaultdict(list), {1}, deque([1], maxlen=2)
VECTOR, TABLE = torch.zeros(3), np.zeros(3)
MODEL, FOUND = Weights(torch.zeros(2), torch.zeros(1), torch.zeros(0)), nn.BatchNorm1d(2)
THING, SPACE = Thing(), SimpleNamespace(x=1)
COUNT, STREAM, DRAW = itertools.count(), torch.Generator(), random.Random(0)
BIG = [0] * (2 * MOST_ITEMS)
LOG = logging.getLogger(__name__)


@functools.cache
def table(size: int) -> torch.Tensor:
    return torch.eye(size)


def helper(value: int, known: list[int] = []) -> list[int]:  # noqa: B006
    return known


class Own(Method):
    held: ClassVar[dict[str, list[int]]] = {"a": []}

    @functools.cached_property
    def later(self) -> int:
        return 1

    @staticmethod
    def near(values: list[int] = []) -> list[int]:  # noqa: B006
        return values


CHANGES = {
    "NUMBER": lambda: globals().update(NUMBER=1001),
    "LISTED": lambda: LISTED.append(2),
    "NAMED": lambda: NAMED[1].append(2),
    "KNOWN": lambda: KNOWN.add(2),
    "LAST": lambda: LAST.append(2),
    "VECTOR": lambda: VECTOR.add_(1),
    "TABLE": lambda: TABLE.__setitem__(0, 1),
    "MODEL": lambda: MODEL.params.add_(1),
    "FOUND": lambda: FOUND(torch.randn(4, 2)),
    "THING": lambda: THING.seen.update({1: 1}),
    "SPACE": lambda: vars(SPACE).update(y=1),
    "COUNT": lambda: next(COUNT),
    "STREAM": lambda: torch.rand(1, generator=STREAM),
    "DRAW": lambda: DRAW.random(),
    "BIG": lambda: BIG.append(1),
    "ADDED": lambda: globals().update(ADDED=1),
    "the class variable Own.held": lambda: Own.held["a"].append(1),
    "the default of helper's argument known": lambda: helper(1).append(1),
    "the default of Own.near's argument values": lambda: Own.near().append(1),
    "the attribute seen of function helper": lambda: vars(helper).update(seen=len(vars(helper))),
}


@pytest.mark.parametrize("place", CHANGES)
def test_a_change_is_seen_once_and_named(place):
    before = Stores(Own)
    assert before.first_change() is None
    CHANGES[place]()
    changed = before.first_change()
    assert changed is not None
    words = place if " " in place else f"{place}, a global of module {__name__}"
    assert changed[0] == words
    assert Stores(Own).first_change() is None


def test_caches_logs_and_equal_values_are_no_changes():
    before = Stores(Own)
    table(3)
    LOG.warning("said")
    LOG.setLevel("ERROR")
    globals().update(NUMBER=int(str(NUMBER)), WORDS=tuple("ab"), NOT_A_NUMBER=float("nan"))
    made = object.__new__(Own)
    assert made.later == 1
    helper(1)
    FOUND.eval()
    assert before.first_change() is None


@pytest.mark.parametrize("name", methods.names())
def test_the_methods_of_fedbench_have_nothing_to_watch(name):
    assert spaces_of(methods.load(name))[0] == []


def test_a_class_that_derives_from_one_is_watched_alone():
    class Mine(SCAFFOLD):
        seen: ClassVar[list[int]] = []

    before = Stores(Mine)
    SCAFFOLD.train_defaults["lr"] = 0.1
    try:
        assert before.first_change() is None
    finally:
        del SCAFFOLD.train_defaults["lr"]
    Mine.seen.append(1)
    changed = before.first_change()
    assert changed is not None
    assert changed[0].endswith("Mine.seen")


def test_the_first_calls_of_every_method_are_watched_then_one_of_some():
    made = [object.__new__(Own) for _ in range(2)]
    for one in made:
        watched = [Stores.of_call(one, "train") is not None for _ in range(32)]
        assert watched == [True] * 8 + [number % 16 == 0 for number in range(9, 33)]
        assert Stores.of_call(one, "receive") is not None
