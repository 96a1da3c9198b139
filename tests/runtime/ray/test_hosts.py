"""Hosts that die are made anew, and clients move with their states."""

import os
import signal

import pytest
import torch

from fedbench.data.partitions import partition
from fedbench.data.prepared import PreparedDataset
from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.runtime.exchange import ClientTask, Order, Relocation, Reply, Setup
from fedbench.runtime.ray.hosts import RayHosts
from fedbench.runtime.server.placement import Homes
from fedbench.runtime.states.store import StateLostError
from tests.runtime.rounds import driver, play, small


@pytest.fixture
def hosts(ray_hosts) -> RayHosts:
    """Two hosts that a test may kill; they are made anew for the next one."""
    return ray_hosts(2)


def begun(hosts: RayHosts, **more) -> None:
    resolved = resolve(small("fedper", **more))
    config, dataset = resolved.config, resolved.dataset
    hosts.begin(Setup(config, 0, partition(dataset, config, 0), PreparedDataset.of(dataset)))


def trained(hosts: RayHosts, number: int, kept: int, host: int = 0, moves=()) -> Reply:
    """Client 3 trains in an exchange on one of the hosts, another one beside it on the other."""
    resolved = resolve(small("fedper"))
    run = driver(resolved)
    message = run.method.send(run.server, 3)
    orders = [Order(number, [ClientTask(3, message, kept, train=True)] if i == host else []) for i in range(2)]
    return hosts.exchange(orders, moves)[host]


def kill(reply: Reply) -> None:
    os.kill(reply.process, signal.SIGKILL)


def test_a_host_that_dies_between_two_exchanges_is_made_anew_with_its_states(hosts):
    begun(hosts)
    first = trained(hosts, 0, 0)
    assert first.reports[0].kept
    kill(first)
    again = trained(hosts, 1, 1)
    assert again.reports[0].failure is None
    assert again.process != first.process
    assert hosts.remarks == ["host 0 died in exchange 1 and was started again"]


@pytest.mark.night
def test_states_in_memory_die_with_their_host_and_that_is_said(hosts):
    begun(hosts, resources={"states": "memory"})
    kill(trained(hosts, 0, 0))
    with pytest.raises(StateLostError, match="the private state of client 3, saved in round 1, is lost"):
        trained(hosts, 1, 1)


def test_a_client_moves_to_another_host_with_its_state(hosts):
    begun(hosts)
    stayed = trained(hosts, 0, 0), trained(hosts, 1, 1)
    begun(hosts)
    moved = trained(hosts, 0, 0), trained(hosts, 1, 1, host=1, moves=[Relocation(3, 1, 0, 1)])
    for one, other in zip(stayed, moved, strict=True):
        assert torch.equal(one.reports[0].upload.params, other.reports[0].upload.params)
    with pytest.raises(StateLostError):
        trained(hosts, 2, 2, host=0)


@pytest.mark.parametrize("who", ["source", pytest.param("target", marks=pytest.mark.night)])
def test_a_host_that_dies_while_a_client_moves(who, hosts):
    begun(hosts)
    source = trained(hosts, 0, 0)
    target = hosts.exchange([Order(1, []), Order(1, [])])[1]
    kill(source if who == "source" else target)
    reply = trained(hosts, 1, 1, host=1, moves=[Relocation(3, 1, 0, 1)])
    assert reply.reports[0].failure is None
    assert len(hosts.remarks) == 1


def test_moving_clients_changes_no_bit(hosts, tmp_path, monkeypatch):
    """Every client with a state moves in every exchange."""

    def restless(self, loads, dealt, cost):
        moves = []
        for host, tasks in enumerate([list(own) for own in dealt]):
            for task in tasks:
                if task.client in self.of:
                    moves.append(Relocation(task.client, self.of[task.client].kept, host, 1 - host))
                    self.of[task.client].host = 1 - host
                    self.moved_away.setdefault(host, []).append(task.client)
                    dealt[host].remove(task)
                    dealt[1 - host].append(task)
        return moves

    for method in ("ditto", "fedper"):
        config = small(method, participation=0.5, rounds=6)
        expected = play(config, tmp_path / method)
        with monkeypatch.context() as patch:
            patch.setattr(Homes, "_even_out", restless)
            assert play(config, tmp_path / f"{method} moved", hosts) == expected


def test_the_part_of_a_host_that_dies_is_done_again(ray_hosts, tmp_path):
    """A host dies while its third client trains."""
    expected = play(small("fedcac", rounds=8), tmp_path / "undisturbed")
    notes, hosts = tmp_path / "notes", ray_hosts(1)
    found = play(
        small("fedcac", rounds=8, method__name="tests.runtime.accidents:Deadly", method__notes=str(notes)),
        tmp_path / "out",
        hosts,
    )
    assert len(hosts._channel._arena._sizes) <= 2 * 10 + 2  # the dead host's files do not stay in shared memory
    assert found == expected
    fits = [tuple(map(int, line.split())) for line in notes.read_text().splitlines()]
    third = [client for round, client in fits if round == 3]
    assert third[:3] == third[3:6]
    assert len(third) == 13


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        ("Undeclared", r"^PrivateState has no field 'previous', .* .mistakes.py:\d+.$"),
        (
            "LossInTorch",
            r"^seed 0, round 1: every client .10. fails in the same way: ValueError: .* .mistakes.py:\d+.$",
        ),
    ],
)
def test_a_mistake_in_the_users_code_is_known_by_its_line_on_a_host_too(mistake, line, hosts, tmp_path):
    with pytest.raises(RunError, match=line) as caught:
        play(small(f"tests.methods.mistakes:{mistake}"), tmp_path, hosts)
    assert "Traceback" in caught.value.trace
