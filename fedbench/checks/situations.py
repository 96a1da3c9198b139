"""Clients and fleets in which a method must work, or refuse to before round 1."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.messages import is_pooled
from fedbench.checks.method_runs import ROUNDS, MethodRuns, Record
from fedbench.checks.recording import variant
from fedbench.errors import ConfigError, RunError
from fedbench.jobs.resolve import check_run
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights
from fedbench.runtime.resolved import ResolvedRun

FAILS_IN = 2
"""The round in which a client fails on purpose."""
LONGEST = 120
"""Letters of a refusal that are shown."""
ALMOST_NONE = 1e-6
"""Factor of all learning rates with which a client hardly changes its model; none divides by 0."""
PLAIN = {"name": "mlp", "hidden": 8}
"""Without running statistics, which are sent without noise."""


def odd_clients(method: MethodRuns) -> str:
    method.undisturbed("plain")
    config = method.config("odd")
    lines = metrics_of(method.play(config))
    _refuse_failures(lines)
    clients = config.partition.clients
    if any(line["clients"] != clients for line in lines):
        raise CheckFailure(f"only {min(line['clients'] for line in lines)} of {clients} clients have a score")
    return "one has a single sample, all have a single class"


def alone(method: MethodRuns) -> str:
    return _works_or_is_refused(method, partition={"name": "iid", "clients": 1}, participation=1.0)


def client_fails(method: MethodRuns) -> str:
    """One client raises an error in round 2."""
    method.undisturbed("plain")
    if is_pooled(method):
        raise DoesNotApply("one model is trained on the data of all clients")
    train: Callable[..., Upload] = method.kind.train

    def fails(self: Any, client: Client, received: Weights) -> Upload:
        if client.id == 1 and client.round == FAILS_IN:
            raise ValueError("on purpose")
        return train(self, client, received)

    def change(run: ResolvedRun) -> ResolvedRun:
        return replace(run, method=variant(run.method, train=fails))

    lines = metrics_of(method.play(method.config("plain", rounds=3), change=change))
    failed = {line["round"] for line in lines if line["failed"]}
    if failed != {FAILS_IN}:
        raise CheckFailure(f"a client failed in round {FAILS_IN}, and failures are recorded of {sorted(failed)}")
    if {line["round"] for line in lines} != {1, 2, 3}:
        raise CheckFailure("after the failure of a client rounds are missing")
    return ""


def joins_late(method: MethodRuns) -> str:
    new = {"partition__new_clients": 1, "partition__clients": 4, "evaluate__new_clients_epochs": [0, 1]}
    data = {} if method.given else {"data": "digits"}
    return _works_or_is_refused(method, **new, **data, participation=1.0, rounds=1)


def median(method: MethodRuns) -> str:
    return _works_or_is_refused(method, aggregator="median")


def lost_uploads(method: MethodRuns) -> str:
    return _works_or_is_refused(method, dropout=0.5)


def compression(method: MethodRuns) -> str:
    line = _works_or_is_refused(method, compression="topk", **_without_statistics(method))
    if not line:
        refuse_other_reference(method)
    return line


def refuse_other_reference(method: MethodRuns) -> None:
    """Raises CheckFailure if a client that changes nothing sends what is nearer to nothing than to `reference`."""
    hosts = method.undisturbed("plain")
    host, own = hosts.host, hosts.host.models[0].method
    task = next((t for t in hosts.tasks.values() if t.message.sizes.get("params")), None)
    if task is None:
        return
    client = host.client(task, ROUNDS)
    client.decay *= ALMOST_NONE
    received = own.receive(client)
    upload = own.outgoing(client, received, own.train(client, received))
    start = own.reference(client.message, upload)
    if "params" not in upload or start is None or start.shape != upload.params.shape:
        return
    if float((upload.params - start).norm()) > float(upload.params.norm()):
        raise CheckFailure(
            "a client that changes nothing sends what is far from the parameters it received: what compression, "
            "clipping or an attack takes from an update would come back as the model; override `reference`, with zeros "
            "where clients send a difference"
        )


def noise(method: MethodRuns) -> str:
    return _works_or_is_refused(method, privacy={"clip": 1.0, "noise": 0.1}, **_without_statistics(method))


def _without_statistics(method: MethodRuns) -> dict[str, Any]:
    return {} if method.given else {"model": PLAIN}


def _works_or_is_refused(method: MethodRuns, **keys: Any) -> str:
    """Plays a tiny run with these keys. Raises CheckFailure if it fails after round 1 has begun."""
    method.undisturbed("plain")
    folder = method.folder_for("tiny")
    try:
        run = method.resolve(method.config("tiny", **keys))
        check_run(run)
    except ConfigError as error:
        return f"refused before round 1: {_shorten(str(error))}"
    try:
        _refuse_failures(metrics_of(method.play(run, folder=folder)))
    except ConfigError as error:
        if not isinstance(error, RunError) and not has_records(folder):
            return f"refused before round 1: {_shorten(str(error))}"
        raise CheckFailure(
            f"neither works nor is refused before round 1: {error}; refuse it in check(), with a ConfigError"
        ) from error
    return ""


def has_records(folder: Path) -> bool:
    file = folder / "metrics.jsonl"
    return file.exists() and file.stat().st_size > 0


def _shorten(line: str) -> str:
    return shorten(line, LONGEST, placeholder=" ...")


def metrics_of(record: Record) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record["metrics.jsonl"].splitlines()]


def _refuse_failures(lines: list[dict[str, Any]]) -> None:
    """Raises CheckFailure for clients that failed, or if no round has a score."""
    if failed := next((line["failed"] for line in lines if line["failed"]), None):
        raise CheckFailure(f"clients fail: {failed}")
    if not lines:
        raise CheckFailure("no round has a score")
