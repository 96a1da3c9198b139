"""What is said of how methods are tuned."""

from dataclasses import replace

from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.rates import Remarks
from fedbench.studies.tuning_remarks import not_tuned, rate_doubts, turned_rates

PLAIN = ComparedMethod("fedper", "fedper", points=({"train.lr": 0.01}, {"train.lr": 0.1}))


def test_keys_that_are_not_tuned_are_named_once_with_the_reason():
    first = replace(PLAIN, untuned={"train.momentum": "Adam has none", "train.lr": "fixed"}, held=("train.epochs",))
    second = replace(PLAIN, label="ditto", untuned={"train.nesterov": "Adam has none"}, held=("train.epochs",))
    assert list(not_tuned([first, second])) == [
        "not tuned: train.momentum, train.nesterov: without effect: Adam has none",
        "not tuned: train.lr: without effect: fixed",
        "not tuned, because set: train.epochs",
    ]
    assert list(not_tuned([replace(first, untuned={}, fixed={"train.epochs": 1})])) == []


def test_rates_that_are_turned_or_doubtful_name_the_methods():
    turned = [replace(PLAIN, label=label, rates=Remarks(turned="0.3 in place of 3")) for label in ("a", "b")]
    assert list(turned_rates([*turned, PLAIN])) == ["rates for the optimiser of the run: 0.3 in place of 3: a, b"]
    doubtful = replace(PLAIN, rates=Remarks(doubt="are for sgd"))
    assert list(rate_doubts([doubtful])) == ["fedper: are for sgd"]


def test_methods_without_a_choice_of_rates_are_named():
    single = ComparedMethod("local", "local")
    (only,) = rate_doubts([PLAIN, single])
    assert only.startswith("one learning rate each: for local no other one is tried")
    (every,) = rate_doubts([single])
    assert every.startswith("one learning rate each: for any method no other one is tried")
