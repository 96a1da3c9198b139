"""What every method promises, whatever it does: the same numbers however and wherever it is run."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from zlib import crc32

import pandas as pd
import torch
from torch import Tensor

from fedbench.checks.another_process import records_of_another_process
from fedbench.checks.check import Check, CheckFailure, DoesNotApply
from fedbench.checks.messages import (
    bytes_are_those_that_travel,
    masks_are_whole,
    models_are_fresh,
    private_entries_stay,
    weights_count,
)
from fedbench.checks.method_runs import CLIENTS, ROUNDS, MethodRuns, Record, is_store_error, read, require_equal
from fedbench.checks.options import every_option_changes_something
from fedbench.checks.parts import frozen_entries_stay, private_entries_are_read, statistics_are_shared
from fedbench.checks.recording import Backwards, same, snapshot
from fedbench.checks.reductions import degenerate_cases_hold
from fedbench.checks.several_hosts import SeveralHosts
from fedbench.checks.situations import (
    alone,
    client_fails,
    compression,
    joins_late,
    lost_uploads,
    median,
    noise,
    odd_clients,
)
from fedbench.config import Config
from fedbench.engine.compiled import uncompiled_steps
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run
from fedbench.methods.client import PrivateState
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from fedbench.results.schema import SUMMED_COSTS
from fedbench.results.summary import rounds_behind
from fedbench.runtime.exchange import POOLED
from fedbench.runtime.host import Host
from fedbench.runtime.hosts import Hosts

IN_ROWS = {"rounds": 2, "train__batch_size": 16, "train__engine": "compiled", "train__width": 4}
EXACT = {**IN_ROWS, "train__precision": "64-true"}
REAL_IMAGES = {"name": "fedbench.checks.samples:real_images"}


def runs(method: MethodRuns) -> str:
    try:
        hosts = method.first("plain")
    except ConfigError as error:
        if is_store_error(error):
            raise DoesNotApply("its run ends where the next check says") from error
        raise
    lines = lines_of(read(hosts.folder))
    if failed := [line["failed"] for line in lines if line["failed"]]:
        raise CheckFailure(f"clients fail: {failed[0]}")
    return f"{ROUNDS} rounds of {CLIENTS} clients"


def keeps_what_is_declared(method: MethodRuns) -> str:
    """States and server fields are all that a method keeps; who trains keeps its private part."""
    try:
        method.first("plain")
    except ConfigError as error:
        if is_store_error(error):
            raise CheckFailure(str(error)) from error
    hosts = method.undisturbed("awkward")
    states = {n: hosts.host.client(task, ROUNDS).state for n, task in hosts.tasks.items() if task.kept}
    kept = {number for number, state in states.items() if not replace(state, optimizers={}).is_empty}
    trained = {task.client for order in hosts.orders for task in order.tasks if task.train}
    if stranger := sorted(kept - trained):
        raise CheckFailure(f"client {stranger[0]} has a private state without having trained: set it in train")
    own = hosts.host.models[0].method
    entries = (own.private_params, own.private_buffers, own.private_counters)
    if any(part.size for part in entries) and kept and (lost := sorted(trained - kept)):
        raise CheckFailure(
            f"client {lost[0]} trained and its private entries are not in its state: end train with "
            "`return self.upload(client, trained)`"
        )
    first = vars(method.kind.State())
    fields = sorted(first.keys() - vars(PrivateState()).keys())
    changed = {
        name
        for name in fields
        for state in states.values()
        if type(vars(state)[name]) is not type(first[name]) or not same(vars(state)[name], first[name])
    }
    words = f"clients keep {', '.join(sorted(changed)) or 'no fields of their own'}"
    never = [name for name in fields if name not in changed]
    return f"{words}; never set with these options: {', '.join(never)}" if never else words


def any_order_of_clients(method: MethodRuns, kind: str = "plain") -> str:
    here = method.records(kind)
    if method.play(method.config(kind), Backwards()) != here:
        again = method.play(method.config(kind))
        if again != here:
            raise CheckFailure(
                f"a second run in the same process has other numbers{first_difference(here, again)}: something is kept "
                "in a cache, a default or an attribute of the module: keep it in client.state, or in Server"
            )
        raise CheckFailure(
            "clients that take their turns in another order end with other numbers: something goes from one client to "
            "the next on its host, for example a tensor that is written in place, or a random stream that is shared: "
            "keep it in client.state, draw from client.generator(name)"
        )
    return ""


def the_same_in_another_process(method: MethodRuns) -> str:
    here, there = method.records("plain"), records_of_another_process(method)
    if here != there:
        raise CheckFailure(
            f"another process has other numbers{first_difference(here, there)}: something depends on the `hash` of a "
            "text or on the order of a set: take zlib.crc32 and sorted"
        )
    return ""


def stopped_and_resumed(method: MethodRuns, hosts: Callable[[int], Hosts] = SeveralHosts) -> str:
    """Stopped on two hosts in a round of its own, so that all methods together stop everywhere; resumed on three.

    hosts: so many of them, by default of this process.
    """
    here = method.records("awkward")
    every, round = divmod(crc32(method.name.encode()) % (2 * (ROUNDS + 1)), ROUNDS + 1)
    config, folder = method.config("awkward", checkpoint__every=1 + every), method.folder_for("stopped")
    method.stop(config, folder, 1 + round, hosts(2))
    resumed = method.play(config, hosts(3), folder, resume=True)
    if resumed != here:
        whole = method.play(method.config("awkward"), hosts(2))
        if whole != here:
            raise CheckFailure(
                f"two hosts have other numbers than one process{first_difference(here, whole)}: what a client needs "
                "later is not in client.state, or what all need is not in a message"
            )
        raise CheckFailure(
            f"a run that was stopped in round {1 + round} and resumed has other numbers"
            f"{first_difference(here, resumed)}: something is kept in no field that a checkpoint has, such as a field "
            "with init=False: declare it in State or Server as `name: TYPE = DEFAULT`"
        )
    return f"stopped in round {1 + round} on two hosts, resumed on three"


def more_rounds_continue(method: MethodRuns) -> str:
    here, (folder, uses_rounds) = method.records("awkward"), method.shorter
    if uses_rounds:
        return "uses the number of rounds, so that a run cannot be given more later"
    continued = method.play(method.config("awkward"), folder=folder, resume=True)
    line = f"a run that is given a round more is another one than a longer run{first_difference(here, continued)}"
    require_equal(continued, here, f"{line}: nothing may depend on the number of rounds but what reads context.rounds")
    return ""


def evaluation_changes_nothing(method: MethodRuns) -> str:
    _looks_change_nothing(method)
    often = method.undisturbed("awkward").folder
    seldom = method.folder_for("seldom")
    method.play(method.config("awkward", evaluate__every=3), folder=seldom)
    a, b = Records(often), Records(seldom)
    for table in (metrics_with_total_costs, Records.clients, Records.traces):
        if not in_rounds(table(a), 3, 4).equals(in_rounds(table(b), 3, 4)):
            raise CheckFailure(
                "with evaluate.every = 3 later rounds have other numbers: evaluation changes what is trained: let "
                "personal, receive and predictors compute on copies, and draw nothing"
            )
    return ""


def metrics_with_total_costs(records: Records) -> pd.DataFrame:
    """metrics.jsonl with the costs of all rounds so far: those of a line are means, which depend on the line before."""
    metrics = records.metrics()
    fits = metrics[(metrics["point"] == "after_fit") & (metrics["round"] > 0)]
    totals = fits[[*SUMMED_COSTS]].astype(float).mul(rounds_behind(fits), axis=0).groupby(fits["seed"]).cumsum()
    return metrics.drop(columns=[*SUMMED_COSTS]).join(totals.round())  # sums of whole numbers


def in_rounds(frame: pd.DataFrame, *rounds: int) -> pd.DataFrame:
    return frame[frame["round"].isin(rounds)].reset_index(drop=True)


def _looks_change_nothing(method: MethodRuns) -> None:
    hosts = method.undisturbed("awkward")
    host = hosts.host
    for number, task in hosts.tasks.items():
        client = host.client(task, ROUNDS)
        learner = host.models[0].learner
        before = snapshot(vars(client.state)), snapshot(client.message.tensors), snapshot(vars(client.initial))
        data = host.held_out(task, ROUNDS).get("test", client.train)
        own = host.models[0].method
        received = own.receive(client)
        buffers = learner.initial().buffers.clone()
        looks: dict[str, Callable[[], Any]] = {
            "receive": partial(own.receive, client),
            "personal": partial(own.personal, client, received, "after_agg"),
        }
        for name, look in looks.items():
            first, second = (scored(host, look(), data) for _ in range(2))
            if not same(first, second):
                raise CheckFailure(f"{name} gives client {number} another model when it is called again")
        after = snapshot(vars(client.state)), snapshot(client.message.tensors), snapshot(vars(client.initial))
        if not all(same(a, b) for a, b in zip(before, after, strict=True)):
            raise CheckFailure(f"receive or personal changes client {number}'s state, message or start model")
        if not torch.equal(buffers, learner.initial().buffers):
            raise CheckFailure("evaluation changes the running statistics of the start model: call module.eval()")


def scored(host: Host, model: object, data: object) -> Tensor | None:
    """Class scores of a model, or None where the point has none."""
    if model is None:
        return None
    return host.models[0].learner.logits(model, data) if isinstance(model, Weights) else model.scores(data)  # type: ignore[attr-defined, arg-type]


def server_keeps_its_tensors(method: MethodRuns) -> str:
    hosts = method.undisturbed("plain")
    if not hosts.untouched:
        raise CheckFailure(
            "a tensor that the server keeps changes while clients train: the client half writes to what it has sent, "
            "or to what it received: write to a copy, by .clone()"
        )
    return ""


def steps_are_estimated(method: MethodRuns) -> str:
    hosts = method.undisturbed("plain")
    config, sizes = hosts.host.config, hosts.host.context.sizes
    options = method.kind.Options(**config.method.options)
    for order, reply in zip(hosts.orders, hosts.replies, strict=True):
        if order.number != ROUNDS - 1 or order.extra:
            continue
        for report in (report for report in reply.reports if report.upload):
            samples = sum(sizes) if report.client == POOLED else sizes[report.client]
            steps = method.kind.steps(options, config.train, samples, config.public.size)
            if report.steps != steps:
                raise CheckFailure(
                    f"`steps` says {steps} gradient steps for a client with {samples} samples, which makes "
                    f"{report.steps}: override steps, by which budgets and estimates count"
                )
    return ""


def steps_in_rows(method: MethodRuns) -> str:
    method.undisturbed("plain")
    folders = {engine: method.folder_for(engine) for engine in ("loop", "compiled")}
    data = {} if "data" in method.given else {"data": REAL_IMAGES}
    configs = [method.config("plain", **{**EXACT, **data, "train__engine": engine}) for engine in folders]
    with uncompiled_steps():
        if method.given:
            _require_rows(method, configs)
        for config, folder in zip(configs, folders.values(), strict=True):
            method.play(config, folder=folder)
    a, b = (Records(folder) for folder in folders.values())
    for table in (Records.metrics, Records.clients, Records.traces):
        try:
            pd.testing.assert_frame_equal(table(a), table(b), check_exact=False, rtol=1e-9, atol=1e-12)
        except AssertionError as error:
            raise CheckFailure(
                "steps of four clients at once compute otherwise than one client after another: gradient edits and "
                "losses must work on [N] and on [clients, N], elementwise over the last dimension"
            ) from error
    return ""


def _require_rows(method: MethodRuns, configs: list[Config]) -> None:
    """Raises DoesNotApply if an engine does not take the model that is given."""
    try:
        for config in configs:
            check_run(method.resolve(config))
    except ConfigError as error:
        raise DoesNotApply(f"the model is not trained in rows: {error}") from error


def lines_of(record: Record) -> list[dict[str, object]]:
    return [json.loads(line) for line in record["metrics.jsonl"].splitlines()]


def first_difference(one: Record, other: Record) -> str:
    """Where two records differ first, in words: `, first in round 2, client 3`."""
    frames = [pd.read_parquet(io.BytesIO(record["clients.parquet"])) for record in (one, other)]
    if len(frames[0]) != len(frames[1]):
        return ", first in the number of scores"
    differs = (frames[0]["value"] != frames[1]["value"]).to_numpy()
    if not differs.any():
        return ""
    row = frames[0].iloc[int(differs.argmax())]
    return f", first in round {row['round']} at client {row['client']}"


def _checks() -> Iterator[Check[MethodRuns]]:
    """In the order in which they are asked: cheap and telling ones first."""
    named = {
        "runs": ("it trains, and no client fails", runs),
        "kept": ("nothing is kept that no field declares", keeps_what_is_declared),
        "masks": ("masks are bool and hold whole tensors", masks_are_whole),
        "private": ("private entries do not leave the client", private_entries_stay),
        "read": ("what a client keeps of its model is read again", private_entries_are_read),
        "frozen": ("frozen entries stay as they are", frozen_entries_stay),
        "statistics": ("running statistics are shared like parameters", statistics_are_shared),
        "fresh": ("clients train from the newest model that is sent", models_are_fresh),
        "weights": ("means have the weights that method.weighting says", weights_count),
        "bytes": ("the bytes that are counted are those that travel", bytes_are_those_that_travel),
        "order": ("the same bits for any order of the clients, and again", any_order_of_clients),
        "process": ("the same bits in another process", the_same_in_another_process),
        "resume": ("the same bits on several hosts, stopped and resumed", stopped_and_resumed),
        "rounds": ("a longer run continues a shorter one", more_rounds_continue),
        "evaluation": ("evaluating changes nothing", evaluation_changes_nothing),
        "server": ("what the server keeps stays while clients train", server_keeps_its_tensors),
        "steps": ("gradient steps are as many as `steps` says", steps_are_estimated),
        "degenerate": ("the cases of REDUCES_TO hold to the bit", degenerate_cases_hold),
        "odd clients": ("clients with one sample or one class train like others", odd_clients),
        "alone": ("one client alone trains", alone),
        "failure": ("a client that fails is left out, and the others go on", client_fails),
        "joins late": ("clients can join after the last round, or are refused", joins_late),
        "median": ("a median in place of the mean works or is refused", median),
        "lost uploads": ("lost uploads leave a run whole", lost_uploads),
        "compression": ("compressed uploads work or are refused", compression),
        "noise": ("clipped and noisy uploads work or are refused", noise),
        "options": ("every option changes something", every_option_changes_something),
        "steps in rows": ("steps of several clients at once are the arithmetic of the loop", steps_in_rows),
    }
    for name, (proves, function) in named.items():
        yield Check(name, proves, "method", function)


METHOD_CHECKS = tuple(_checks())
