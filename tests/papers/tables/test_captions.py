"""The presets of tables and figures say what the papers' captions say."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from fedbench.config.files import load_yaml
from fedbench_papers.tables.experiment import EXPERIMENTS_FOLDER, Experiment, figures, names
from fedbench_papers.tables.figure import Figure

FACTS = {"data", "each", "cells", "draw", "over", "values", "some values", "instead", "traces", "clients", "lines"}
TOPICS = {"data sets": "data", "values of": "values", "what is drawn": "draw", "which losses": "traces"}
"""Beginnings of lines of `open` on what only the picture shows, with the fact that would say it."""
PRESETS = [name for name in (*names(), *figures()) if Experiment.load(name).cells and not name.endswith("-working")]


@cache
def captions(paper: str) -> dict[str, dict[str, Any]]:
    return load_yaml(EXPERIMENTS_FOLDER / paper / "captions.yaml")


def facts_of(name: str) -> dict[str, Any]:
    paper, _, own = name.partition("/")
    return captions(paper)[own]


def departures(experiment: Experiment, facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts that a preset does not agree with."""
    values = [experiment.values(cell, "full") for cell in experiment.cells]
    if "data" in facts and {cell.dataset for cell in experiment.cells} != set(facts["data"]):
        yield "data"
    for key, value in facts.get("each", {}).items():
        if any(own.get(key) != value for own in values):
            yield key
    for key, known in facts.get("cells", {}).items():
        if {own.get(key) for own in values} != set(known):
            yield key
    if experiment.figure is not None:
        yield from figure_departures(experiment.figure, facts)


def figure_departures(figure: Figure, facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts that what a figure draws does not agree with."""
    asked = Figure.of({"draw": figure.draw, "instead": facts.get("instead", {})})
    for key in ("draw", "over", "values", "traces", "clients"):
        own = getattr(figure, key)
        if key in facts and (list(own) if isinstance(own, tuple) else own) != facts[key]:
            yield key
    if figure.instead != asked.instead:
        yield "instead"
    if not set(facts.get("some values", ())) <= set(figure.values):
        yield "some values"
    if len(figure.lines) != facts.get("lines", 1):
        yield "lines"


def unsaid(experiment: Experiment, facts: Mapping[str, Any]) -> Iterator[str]:
    """What a preset chose where the caption is silent, without a line of `open`."""
    topics = [line.partition(":")[0] for line in experiment.open]
    if "data" not in facts and "data sets" not in topics:
        yield "data"
    over_values = experiment.figure is not None and experiment.figure.draw == "values"
    if over_values and "values" not in facts and not any(topic.startswith("values of") for topic in topics):
        yield "values"


def claimed_of_pictures(lines: list[str], facts: Mapping[str, Any]) -> Iterator[str]:
    """Lines of `open` that say that only the picture shows what the caption says."""
    for line in lines:
        if "in the figure only" in line:
            fact = next(fact for start, fact in TOPICS.items() if line.startswith(start))
            if fact in facts:
                yield line


def test_every_preset_has_its_facts_and_no_fact_lacks_one():
    for paper in {name.partition("/")[0] for name in PRESETS}:
        assert {f"{paper}/{own}" for own in captions(paper)} == {n for n in PRESETS if n.startswith(f"{paper}/")}
        assert all(set(facts) <= FACTS for facts in captions(paper).values())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_agrees_with_its_caption(name):
    experiment, facts = Experiment.load(name), facts_of(name)
    assert list(departures(experiment, facts)) == []
    assert list(unsaid(experiment, facts)) == []
    assert list(claimed_of_pictures(list(experiment.open), facts)) == []


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("fedobp/figure-11", {"data": ["cifar10", "cifar100", "emnist", "svhn"]}, "data"),
        ("fedobp/main", {"each": {"rounds": 450}}, "rounds"),
        ("fedobp/main", {"cells": {"partition.alpha": [0.1]}}, "partition.alpha"),
        ("fedobp/figure-8", {"some values": [0.12]}, "some values"),
        ("fedmosaic/figure-5", {"traces": ["loss_public"]}, "traces"),
        ("fedmosaic/figure-5", {"clients": [0, 1, 2]}, "clients"),
        ("fedmosaic/figure-9", {"instead": {}}, "instead"),
        ("fedmosaic/figure-10", {"draw": "rounds"}, "draw"),
        ("fedmosaic/figure-8", {"values": [3000, 250]}, "values"),
        ("fedcac/figure-4", {"lines": 3}, "lines"),
        ("fedcac/figure-6", {"over": "method.tau"}, "over"),
    ],
)
def test_another_fact_is_a_departure(name, change, found):
    """Without this the tests above would say nothing."""
    assert list(departures(Experiment.load(name), {**facts_of(name), **change})) == [found]


def test_what_a_caption_says_is_not_left_to_the_picture():
    lines = ["data sets: in the figure only; those of the text"]
    assert list(claimed_of_pictures(lines, {"data": ["mnist"]})) == lines
    assert list(claimed_of_pictures(lines, {})) == []
    assert list(unsaid(Experiment.load("fedobp/figure-9"), {})) == ["data"]
