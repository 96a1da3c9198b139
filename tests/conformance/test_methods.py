"""Every method of the table keeps the promises of `fedbench check`, and what tables here say of single methods."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from fedbench.checks.method_runs import ROUNDS, MethodRuns
from fedbench.checks.methods import METHOD_CHECKS, stopped_and_resumed
from fedbench.checks.several_hosts import SeveralHosts
from fedbench.checks.situations import refuse_other_reference
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.client import PrivateState
from fedbench.results.reader import Records
from tests.runtime.rounds import MORE

SENDS_NOTHING = {"local", "centralized"}
FROZEN_HEAD = {"perfedmask"}
"""Methods whose private part is never trained, so that a client keeps none of it."""
USES_ROUNDS = {"fedkd", "fedphp"}
"""Methods whose rounds depend on how many there are."""
ON_RAY = {"centralized", "co-pfl", "ditto", "fedavg", "fedcac", "fedmosaic", "scaffold"}
"""Methods that are also tried on hosts of Ray by day: each sends or keeps something of another kind."""
BY_NIGHT = {"alone", "joins late", "median", "lost uploads", "compression", "noise", "options", "process"}
"""Checks with runs of their own. By day other tests make their promises, and ask by hand what options do."""

# A group stays in one process where tests run side by side, so that what it shares is made once.
every_method = pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.xdist_group(m)) for m in names()])
every_check = pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=[pytest.mark.night] if check.name in BY_NIGHT else [], id=check.name)
        for check in METHOD_CHECKS
    ],
)


@pytest.fixture(scope="module")
def runs_of() -> Iterator[Callable[[str], MethodRuns]]:
    """A method's runs, each made once."""
    known: dict[str, MethodRuns] = {}

    def runs(method: str) -> MethodRuns:
        if method not in known:
            known[method] = MethodRuns(method, MORE.get(method, {}))
        return known[method]

    yield runs
    for own in known.values():
        own.close()


@every_method
def test_it_declares_its_degenerate_cases_or_says_why_there_are_none(method):
    kind = load(method)
    assert "REDUCES_TO" in vars(kind), "what a base declares is no case of this method"
    reason = re.search(r"\bREDUCES_TO\b.* = \{\}  # none: \w+", inspect.getsource(kind))
    assert (kind.REDUCES_TO == {}) == bool(reason)


@every_check
@every_method
def test_it_keeps_its_promises(method, check, runs_of):
    result = check(runs_of(method))
    assert result.outcome != "failed", result.line


@pytest.mark.parametrize("method", [m if m in ON_RAY else pytest.param(m, marks=pytest.mark.night) for m in names()])
def test_it_is_stopped_and_resumed_on_hosts_of_ray(method, ray_hosts):
    with MethodRuns(method, MORE.get(method, {})) as runs:
        stopped_and_resumed(runs, ray_hosts)


@pytest.mark.parametrize("method", ["ditto", "fedrep", "fedmosaic", "pfedfda"])
def test_steps_of_several_clients_have_the_same_bits_for_any_number_of_hosts(method, runs_of):
    runs = runs_of(method)
    in_rows = {"rounds": 2, "train__batch_size": 16, "train__engine": "compiled", "train__width": 4}
    config = runs.config("plain", **in_rows)
    assert runs.play(config) == runs.play(config, SeveralHosts(3))


@every_method
def test_what_is_said_of_it_is_so(method, runs_of):
    runs = runs_of(method)
    assert runs.shorter[1] == (method in USES_ROUNDS)
    lines = Records(runs.undisturbed("plain").folder).metrics()
    assert (lines["bytes_up"].sum() > 0) == (lines["bytes_down"].sum() > 0) == (method not in SENDS_NOTHING)


def test_odd_clients_are_odd():
    """One client has a single image, all have a single class, somebody's last batch is a single image."""
    with MethodRuns("fedavg") as runs:
        config = runs.config("odd")
        sizes = [len(rows.train) for rows in check_run(resolve(config))[0].clients]
    assert 1 in sizes
    assert any(size % config.train.batch_size == 1 for size in sizes if size > 1)


@every_method
def test_who_encodes_its_parameters_says_so(method, runs_of):
    runs = runs_of(method)
    hosts = runs.undisturbed("plain")
    uploads = [report.upload for report in hosts.reports if report.upload and "params" in report.upload.tensors]
    own = {upload.sizes["params"] not in (0, upload.tensors["params"].nbytes) for upload in uploads} - {False}
    context = replace(hosts.host.context, changes_uploads="compression.name = topk")
    refused = pytest.raises(ConfigError, match="encodes its parameters itself") if own else nullcontext()
    with refused:
        list(runs.kind(runs.kind.Options(**hosts.host.config.method.options), context).check())


@every_method
def test_what_is_sent_without_any_change_is_its_reference(method, runs_of):
    refuse_other_reference(runs_of(method))


@every_method
def test_who_trains_keeps_what_is_private(method, runs_of):
    runs = runs_of(method)
    hosts = runs.undisturbed("awkward")
    states = {n: hosts.host.client(task, ROUNDS).state for n, task in hosts.tasks.items() if task.kept}
    private = {number for number, state in states.items() if not replace(state, optimizers={}).is_empty}
    trained = {task.client for order in hosts.orders for task in order.tasks if task.train}
    own = hosts.host.models[0].method
    entries = (own.private_params, own.private_buffers, own.private_counters)
    keeps = runs.kind.State is not PrivateState or any(part.size for part in entries)
    assert private == (trained if keeps and method not in FROZEN_HEAD else set())
