"""What every method of the table promises, whatever it does: the same numbers however and wherever it is run."""

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass, replace
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd
import pytest
import torch
from torch import Tensor

from fedbench.checks.several_hosts import SeveralHosts
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.client import PrivateState
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from fedbench.runtime.drive import drive
from fedbench.runtime.exchange import POOLED, ClientTask, Order, Relocation, Reply
from fedbench.runtime.host import Host
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.states import checkpoint
from tests.runtime.rounds import play, read, small, stop

ROUNDS, CLIENTS = 4, 6
SENDS_NOTHING = {"local", "centralized"}

FROZEN_HEAD = {"perfedmask"}
"""Methods whose private part is never trained, so that a client keeps none of it."""

USES_ROUNDS = {"fedkd", "fedphp"}
"""Methods whose rounds depend on how many there are."""

ON_RAY = {"centralized", "co-pfl", "ditto", "fedavg", "fedcac", "fedmosaic", "scaffold"}
"""Methods that are also tried on hosts of Ray by day: each sends or keeps something of another kind."""

AWKWARD = dict(
    participation=0.5,
    model={"name": "tests.runtime.networks:Awkward", "head": "classifier"},
    train__optimizer="sgd",
    train__keep_optimizer=True,
    train__lr_decay=0.9,
)
INSTEAD: tuple[dict[str, Any], ...] = ({}, {"train__keep_optimizer": False}, {"train__optimizer": "sgd"})
"""What a method may refuse of a run, and what it takes instead: the first that it accepts."""
ONE_OF_EACH_CLASS = 6
ODD = dict(
    data={"name": "tests.runtime.rounds:odd_images"},
    partition={"name": "shards", "clients": 6, "classes": 1},
    model={"name": "tests.runtime.networks:Awkward", "head": "classifier"},
    train__batch_size=8,
    rounds=2,
)

Record = dict[str, bytes]
# A group stays in one process where tests run side by side, so that what it shares is made once.
every_method = pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.xdist_group(m)) for m in names()])


@cache
def instead(method: str, given: str, public: int | None = None) -> dict[str, Any]:
    """public: images of the public set, if the method has one."""
    for change in INSTEAD:
        try:
            config = small(method, **(ast.literal_eval(given) | change))
            if public and config.public.size:
                config.public.size = public
            check_run(resolve(config))
            return change
        except ConfigError:
            continue
    raise AssertionError(f"{method} refuses {given}")


def asked(method: str, kind: str, **more: Any) -> Config:
    """plain: a perceptron, everybody in every round; awkward: BatchNorm, Dropout, momentum kept, half of them."""
    changed = instead(method, repr(AWKWARD)) if kind == "awkward" else {}
    return small(method, **({"partition__clients": CLIENTS} | (AWKWARD | changed if kind == "awkward" else {}) | more))


def odd(method: str, **more: Any) -> Config:
    config = small(method, **(ODD | instead(method, repr(ODD), ONE_OF_EACH_CLASS) | more))
    if config.public.size:
        config.public.size = ONE_OF_EACH_CLASS
    return config


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], "Watching"]:
    """A method's run in this process, from one end to the other, and all that was sent; run once."""
    known: dict[tuple[str, str], Watching] = {}

    def run(method: str, kind: str) -> Watching:
        if (method, kind) not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            resolved = resolve(asked(method, kind))
            hosts = known[method, kind] = Watching(folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(load(method), "aggregate", hosts.watched(load(method).aggregate))
                drive(resolved, folder, hosts)
        return known[method, kind]

    return run


@every_method
def test_same_bits_stopped_on_two_hosts_and_resumed_on_three(method, undisturbed, tmp_path):
    """Stopped in a round of its own, so that all methods together stop everywhere; private states are in these bits."""
    assert_stopped_and_resumed(method, SeveralHosts, tmp_path, undisturbed)


@pytest.mark.parametrize("method", [m if m in ON_RAY else pytest.param(m, marks=pytest.mark.night) for m in names()])
def test_so_it_is_on_hosts_of_ray(method, undisturbed, ray_hosts, tmp_path):
    assert_stopped_and_resumed(method, ray_hosts, tmp_path, undisturbed)


def assert_stopped_and_resumed(method: str, hosts: Callable, folder: Path, undisturbed: Callable) -> None:
    every, round = divmod(crc32(method.encode()) % (2 * (ROUNDS + 1)), ROUNDS + 1)
    config = asked(method, "awkward", checkpoint__every=1 + every)
    stop(config, folder, 1 + round, hosts(2))
    assert play(config, folder, hosts(3), resume=True) == read(undisturbed(method, "awkward").folder)


@every_method
def test_a_run_with_more_rounds_continues_a_shorter_one_unless_their_number_was_used(method, undisturbed, tmp_path):
    play(asked(method, "awkward", rounds=ROUNDS - 1, checkpoint__keep=True), tmp_path)
    shorter = checkpoint.load(tmp_path / "checkpoint")
    assert shorter is not None
    assert shorter["uses_rounds"] == (method in USES_ROUNDS)
    if not shorter["uses_rounds"]:
        assert play(asked(method, "awkward"), tmp_path, resume=True) == read(undisturbed(method, "awkward").folder)


@every_method
def test_one_client_in_a_stack_is_the_loop_to_the_bit(method, undisturbed, tmp_path):
    config = asked(method, "plain", train__engine="stack", train__width=1)
    assert play(config, tmp_path) == read(undisturbed(method, "plain").folder)


STACK = dict(rounds=2, train__batch_size=16, train__engine="stack", train__width=4)


@every_method
def test_a_stack_is_the_arithmetic_of_the_loop(method, tmp_path):
    for engine in ("loop", "stack"):
        exact = {**STACK, "train__precision": "64-true", "train__engine": engine}
        play(asked(method, "plain", **exact), tmp_path / engine)
    a, b = (Records(tmp_path / engine) for engine in ("loop", "stack"))
    for table in (Records.metrics, Records.clients, Records.traces):
        pd.testing.assert_frame_equal(table(a), table(b), check_exact=False, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["ditto", "fedrep", "fedmosaic", "pfedfda"])
def test_a_stack_has_the_same_bits_for_any_number_of_hosts(method, tmp_path):
    config = asked(method, "plain", **STACK)
    assert play(config, tmp_path / "0") == play(config, tmp_path / "3", SeveralHosts(3))


@every_method
def test_what_is_evaluated_and_when_changes_no_later_number(method, undisturbed, tmp_path):
    play(asked(method, "awkward", evaluate__every=3), tmp_path)
    often, seldom = Records(undisturbed(method, "awkward").folder), Records(tmp_path)
    for table in (Records.metrics, Records.clients, Records.traces):
        pd.testing.assert_frame_equal(in_rounds(table(often), 3, 4), in_rounds(table(seldom), 3, 4), check_exact=True)
    assert set(seldom.metrics()["round"]) <= {0, 3, 4}


def in_rounds(frame: pd.DataFrame, *rounds: int) -> pd.DataFrame:
    return frame[frame["round"].isin(rounds)].reset_index(drop=True)


@every_method
def test_odd_clients_train_like_others(method, tmp_path):
    config = odd(method)
    assert_odd(config)
    here = play(config, tmp_path)
    lines = [json.loads(line) for line in here["metrics.jsonl"].splitlines()]
    assert {line["round"] for line in lines} >= {1, 2}
    assert not any(line["failed"] for line in lines)
    assert all(line["clients"] == 6 for line in lines)


def assert_odd(config: Config) -> None:
    """One client has a single image, all have a single class, somebody's last batch is a single image."""
    sizes = [len(rows.train) for rows in check_run(resolve(config))[0].clients]
    assert 1 in sizes
    assert any(size % config.train.batch_size == 1 for size in sizes if size > 1)


@every_method
def test_hooks_that_look_change_nothing(method, undisturbed):
    hosts = undisturbed(method, "awkward")
    host = hosts.host
    assert len(hosts.tasks) == CLIENTS
    for number, task in hosts.tasks.items():
        client = host.client(task, ROUNDS)
        before = snapshot(vars(client.state)), snapshot(client.message.tensors), snapshot(vars(client.initial))
        data = host.held_out(task, ROUNDS).get("test", client.train)
        own = host.models[0].method
        received = own.receive(client)
        looks = [partial(own.receive, client), partial(own.personal, client, received, "after_agg")]
        for look in looks:
            first, second = (scored(host, look(), data) for _ in range(2))
            assert torch.equal(first, second), number
        after = snapshot(vars(client.state)), snapshot(client.message.tensors), snapshot(vars(client.initial))
        assert all(same(a, b) for a, b in zip(before, after, strict=True))


class Watching(InProcess):
    """Keeps what went through.

    kept: the tensors that the server held after the last round, and what they were then; untouched: whether each of
    them was the same when the next round was aggregated.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.orders: list[Order] = []
        self.replies: list[Reply] = []
        self.tasks: dict[int, ClientTask] = {}
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.untouched = True

    def watched(self, aggregate: Callable) -> Callable:
        @wraps(aggregate)
        def run(method: Any, server: Any, uploads: Any) -> None:
            self.untouched &= all(torch.equal(tensor, before) for tensor, before in self.kept)
            aggregate(method, server, uploads)
            self.kept = [(tensor, tensor.clone()) for tensor in leaves(server.state())]

        return run

    @property
    def host(self) -> Host:
        return self._host

    @property
    def reports(self) -> list[Any]:
        return [report for reply in self.replies for report in reply.reports]

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        replies = super().exchange(orders, moves)
        self.orders += orders
        self.replies += replies
        self.tasks |= {task.client: task for order in orders for task in order.tasks if task.client != POOLED}
        return replies


def scored(host: Host, model: Any, data: Any) -> Tensor:
    """Class scores of a model."""
    return host.models[0].learner.logits(model, data) if isinstance(model, Weights) else model.scores(data)


def snapshot(tree: Any) -> Any:
    """A copy with tensors of its own."""
    if isinstance(tree, Tensor | Weights):
        return tree.clone()
    return {key: snapshot(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, Weights):
        return same(vars(a), vars(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@every_method
def test_steps_are_estimated_as_they_are_counted(method, undisturbed):
    hosts, kind = undisturbed(method, "plain"), load(method)
    config, sizes = hosts.host.config, hosts.host.context.sizes
    (made,) = (
        [report for report in reply.reports if report.upload]
        for order, reply in zip(hosts.orders, hosts.replies, strict=True)
        if order.number == ROUNDS - 1 and not order.extra
    )
    for report in made:
        samples = sum(sizes) if report.client == POOLED else sizes[report.client]
        options = kind.Options(**config.method.options)
        assert report.steps == kind.steps(options, config.train, samples, config.public.size)


@every_method
def test_bytes_recorded_are_those_of_the_messages(method, undisturbed):
    hosts = undisturbed(method, "plain")
    lines = Records(hosts.folder).metrics()
    lines = lines[lines["point"] == "after_fit"].set_index("round")
    down = dict.fromkeys(lines.index, 0)
    for order in hosts.orders:
        made = order.number if order.extra else order.number + 1
        sent = [task.message.nbytes for task in order.tasks if task.train or order.extra]
        down[max(1, min(made, ROUNDS))] += sum(sent)
    assert lines["bytes_down"].to_dict() == down
    sent = [message for report in hosts.reports for message in (report.upload, report.answer) if message]
    assert lines["bytes_up"].sum() == sum(message.nbytes for message in sent)
    assert (lines["bytes_up"].sum() > 0) == (lines["bytes_down"].sum() > 0) == (method not in SENDS_NOTHING)


@every_method
def test_who_encodes_its_parameters_says_so(method, undisturbed):
    hosts, kind = undisturbed(method, "plain"), load(method)
    uploads = [report.upload for report in hosts.reports if report.upload and "params" in report.upload.tensors]
    own = {upload.sizes["params"] not in (0, upload.tensors["params"].nbytes) for upload in uploads} - {False}
    context = replace(hosts.host.context, changes_uploads="compression.name = topk")
    refused = pytest.raises(ConfigError, match="encodes its parameters itself") if own else nullcontext()
    with refused:
        list(kind(kind.Options(**hosts.host.config.method.options), context).check())


@every_method
def test_who_trains_keeps_what_is_private(method, undisturbed):
    hosts = undisturbed(method, "awkward")
    states = {n: hosts.host.client(task, ROUNDS).state for n, task in hosts.tasks.items() if task.kept}
    private = {number for number, state in states.items() if not replace(state, optimizers={}).is_empty}
    trained = {task.client for order in hosts.orders for task in order.tasks if task.train}
    own, kind = hosts.host.models[0].method, load(method)
    entries = (own.private_params, own.private_buffers, own.private_counters)
    keeps = kind.State is not PrivateState or any(part.size for part in entries)
    assert private == (trained if keeps and method not in FROZEN_HEAD else set())


@every_method
def test_what_the_server_keeps_stays_as_it_was_while_clients_train(method, undisturbed):
    """It may keep the tensors of uploads, so nobody else writes to them."""
    hosts = undisturbed(method, "plain")
    assert hosts.kept
    assert hosts.untouched


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested values."""
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        yield from leaves(vars(tree))
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
