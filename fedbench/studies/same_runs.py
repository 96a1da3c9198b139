"""Finds runs that are the same although they were asked for in other words: with the same scores, bit by bit.

The identity of a run, by which its folder is found (`Config.key`), tells some of these apart, so that earlier results
keep their names.
"""

import inspect
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fedbench import models
from fedbench.config import Config
from fedbench.config.counts import count_of, newcomer_count
from fedbench.config.keys import flat
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.scheme import ignored_keys
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import MOST_EVALUATED, model_defaults, with_defaults
from fedbench.methods import load
from fedbench.runtime.warnings import unused_keys, unused_train_keys
from fedbench.studies.cost import dataset_of_run, partition_on
from fedbench.studies.tuning_study import TuningStudy

USUAL_STRENGTH = {"sign-flip": 1.0, "scaled": 10.0, "noise": 1.0, "inner-product": 1.0}
"""The strength of attacks that none is given; that of alie depends on the round."""
ONLY_REPORTED = ("privacy.delta", "stragglers.spread")
"""Keys that decide what is reported beside the scores, epsilon and the time of a round, and no score."""


def refuse_same_settings(studies: Iterable[TuningStudy]) -> None:
    """Raises ConfigError if all methods run the same in two settings, which would count as two pieces of evidence."""
    names = dict[str, str]()
    for study in studies:
        runs = [run_keys(study, label) for label in study.points]
        other = names.setdefault(json.dumps(runs), study.setting)
        if other != study.setting:
            raise ConfigError(f"over: {other} and {study.setting} run the same, and would count twice; give each once")


def refuse_same_methods(study: TuningStudy) -> None:
    """Raises ConfigError if two variants of a method run the same, which would count as two methods."""
    names = dict[str, str]()
    for method in study.compared:
        other = names.setdefault(json.dumps(run_keys(study, method.label)), method.label)
        if other != method.label:
            raise ConfigError(
                f"methods: {other} and {method.label} run the same, and would count as two methods; give one of them"
            )


def run_keys(study: TuningStudy, label: str) -> list[str]:
    """What decides the scores of a method's runs, point by point."""
    method = next(method for method in study.compared if method.label == label)
    configs = [method.config(study.config, point) for point in study.points[label]]
    return [run_key(config) for config in configs]


def run_key(config: Config) -> str:
    """A text that is the same for two configurations whose runs have the same scores with the same seeds."""
    try:
        whole = with_defaults(config)
        dataset = dataset_of_run(whole)
        whole.partition = partition_on(dataset, whole.partition)
        model_defaults(whole, dataset.shape)
    except ConfigError:  # the check before the first trial says what is wrong
        return config.key()
    return json.dumps(effective_keys(whole, dataset), sort_keys=True, default=str)


def effective_keys(config: Config, dataset: Dataset) -> dict[str, Any]:
    """The keys by which the scores of a run are decided, as far as they have an effect.

    config: with its defaults, and with its partition for the data.
    """
    usual = flat(Config(train=dict(load(config.method.name).train_defaults)).model_dump(mode="json"))
    keys = flat(config.decisive())
    unused = [f"train.{one.key}" for one in unused_train_keys(config.method.name, config.train)]
    unused += [f"partition.{key}" for key in ignored_keys(config.partition)]
    unused += [*unused_keys(config), *_without_effect(config)]
    for key in {*unused, *ONLY_REPORTED}:
        keys.pop(key, None)
    keys |= _counts(config) | _data(config, dataset) | _model(config)
    return {key: value for key, value in keys.items() if key not in usual or value != usual[key]}


def _without_effect(config: Config) -> Iterable[str]:
    """Keys that a value of theirs, or of another key, leaves without effect."""
    if config.stragglers.work == 1 or not config.stragglers.share:
        yield from ("stragglers.share", "stragglers.work")
    if not config.public.size:
        yield "public.reserve"
    if not config.partition.noise_rate or not config.partition.noise_clients:
        yield from ("partition.noise_rate", "partition.noise_clients")
    if config.train.engine != "compiled":
        yield "train.width"
    if not config.partition.new_clients:
        yield from ("evaluate.new_clients_epochs", "evaluate.new_clients_samples")


def _counts(config: Config) -> dict[str, Any]:
    """Shares of clients as numbers of clients."""
    partition, clients = config.partition, config.partition.trained_clients
    seen = config.evaluate.clients or min(clients, MOST_EVALUATED)
    counts = {
        "participation": count_of(clients, config.participation),
        "partition.new_clients": newcomer_count(partition.clients, partition.new_clients),
        "evaluate.clients": clients if seen == "all" else min(clients, int(seen)),
        "partition.flip_clients": sorted(partition.flip_clients),
    }
    if config.attack.name != "none":
        counts["attack.share"] = int(config.attack.share * clients + 0.5)
        counts["attack.scale"] = config.attack.scale or USUAL_STRENGTH.get(config.attack.name)
    return counts


def _data(config: Config, dataset: Dataset) -> dict[str, Any]:
    """What a data set is: by its content, whatever its name, unless the name vouches for it."""
    keys: dict[str, Any] = {"data.task": dataset.task}
    if dataset.val_rows and config.data.val:  # they take the place of the share
        keys["data.val"] = "part"
    if not dataset.official and dataset.folder is not None:
        keys["data.name"] = dataset.content
    return keys


def _model(config: Config) -> dict[str, Any]:
    """The options that a model takes by default, and what is set."""
    by_default = dict[str, Any]()
    with suppress(ConfigError, TypeError, ValueError):
        for name in config.model.names:
            parameters = inspect.signature(models.load(name)).parameters.values()
            known = [one for one in parameters if one.name not in models.SHAPE and one.default is not one.empty]
            by_default |= {f"model.{one.name}": one.default for one in known}
    return {**by_default, **{f"model.{key}": value for key, value in config.model.options.items()}}
