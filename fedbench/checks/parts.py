"""Checks of the parts of a model: private entries are read again, frozen ones stay, running statistics are shared."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import ROUNDS, MethodRuns
from fedbench.checks.recording import RecordingHosts
from fedbench.methods.client import Client
from fedbench.module.weights import Weights

MOVED = 1e-2
"""What is added to private entries to see whether they are read."""


def private_entries_are_read(method: MethodRuns) -> str:
    """What a client keeps of its model changes the model that it receives, trains or is evaluated with."""
    hosts = method.undisturbed("awkward")
    own = hosts.host.models[0].method
    sizes = {"params": own.private_params.size, "buffers": own.private_buffers.size}
    if not any(sizes.values()):
        raise DoesNotApply("no entry of the model is private")
    parts = [name for name, size in sizes.items() if size]
    clients = [make for make in _clients(hosts) if any(getattr(make().state, name) is not None for name in parts)]
    if not clients:
        raise DoesNotApply("private entries are in fields of its own")
    for make in clients:
        as_kept, moved = make(), make()
        for name in parts:
            if (kept := getattr(moved.state, name)) is not None:
                setattr(moved.state, name, kept + MOVED)
        if any(not torch.equal(a, b) for a, b in zip(_models(own, as_kept), _models(own, moved), strict=True)):
            return f"{sum(sizes.values())} numbers stay and are used"
    if method.kind.also_sends:
        raise DoesNotApply(f"clients also send {method.kind.also_sends}, and none reads what it keeps")
    raise CheckFailure(
        "a client's private entries are kept and never read: it receives, trains and is evaluated as if it had none: "
        "put them into the model in receive, as `super().receive(client)` does"
    )


def frozen_entries_stay(method: MethodRuns) -> str:
    """Entries that are frozen have the same numbers before and after training."""
    hosts = method.undisturbed("awkward")
    own, layout = hosts.host.models[0].method, hosts.host.models[0].learner.layout
    frozen = own.frozen(layout).params
    if not frozen.any():
        raise DoesNotApply("no parameter is frozen")
    for make in _clients(hosts):
        client = make()
        received = own.receive(client)
        before = received.params[frozen].clone()
        trained = own.train(client, received).trained
        if trained is not None and (moved := int((trained.params[frozen] != before).sum())):
            raise CheckFailure(
                f"training moves {moved} of {len(before)} frozen entries of client {client.id}: fits take "
                "`move=self.moves`, and own steps leave these entries out"
            )
    return f"{int(frozen.sum())} numbers stay"


def statistics_are_shared(method: MethodRuns) -> str:
    """Running statistics that training moves, and that are not private, reach the models of the next round."""
    hosts = method.undisturbed("awkward")
    own, initial = hosts.host.models[0].method, hosts.host.models[0].learner.initial()
    if not own.shared_buffers.size:
        raise DoesNotApply("no running statistics are shared")
    start = own.shared_buffers.take(initial.buffers)
    clients = [*_clients(hosts)]
    if not clients:
        raise DoesNotApply("no client trains a model of its own")
    for make in clients:
        client = make()
        received = own.receive(client)
        evaluated = own.personal(client, received, "after_agg")
        models = [model for model in (received, evaluated) if isinstance(model, Weights)]
        if any(not torch.equal(own.shared_buffers.take(model.buffers), start) for model in models):
            return f"{own.shared_buffers.size} numbers are shared"
        trained = own.train(client, received).trained
        if trained is None or torch.equal(own.shared_buffers.take(trained.buffers), start):
            raise DoesNotApply("training moves no running statistics")
    raise CheckFailure(
        f"after {ROUNDS} rounds clients still receive the running statistics of the start model, which training has "
        "moved: aggregate them too: `server.set_model(...)`, or server.buffers beside server.params"
    )


def _clients(hosts: RecordingHosts) -> Iterator[Callable[[], Client[Any]]]:
    """Makes each client anew that has trained, as it was after the last round."""
    trained = {number for _, number in hosts.trained}
    for number, task in hosts.tasks.items():
        if number in trained and task.message.sizes:
            yield partial(hosts.host.client, task, ROUNDS)


def _models(own: Any, client: Client[Any]) -> Iterator[Tensor]:
    """What a client receives and trains, and what is evaluated."""
    received = own.receive(client)
    yield from (received.params, received.buffers)
    for model in (own.personal(client, received, "after_agg"), own.train(client, received).trained):
        if isinstance(model, Weights):
            yield from (model.params.clone(), model.buffers.clone())
