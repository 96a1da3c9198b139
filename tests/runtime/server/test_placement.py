"""Work is dealt evenly."""

import random

import pytest

from fedbench.methods.messages import Message
from fedbench.runtime.exchange import POOLED, ClientTask, Relocation, Report
from fedbench.runtime.server.placement import MOVE_SECONDS, ClientCosts, Home, Homes


def tasks(count: int) -> list[ClientTask]:
    return [ClientTask(client, Message()) for client in range(count)]


def balance(given, costs, hosts: int) -> list[list[ClientTask]]:
    """Deals clients that have no home."""
    return Homes(hosts).deal(given, costs, movable=True)[0]


def homes(hosts: int, *of: int, nbytes: int = 0) -> Homes:
    """Clients 0, 1, ... at home on these hosts."""
    return Homes(hosts, {client: Home(host, 1, nbytes) for client, host in enumerate(of)})


def clients(dealt: list[list[ClientTask]]) -> list[list[int]]:
    return [[task.client for task in own] for own in dealt]


@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_every_task_once_and_loads_within_one_largest_task(hosts):
    draw = random.Random(hosts)
    for count in (0, 1, 3, 10, 57):
        costs = {client: draw.choice([0.1, 1.0, 5.0]) * draw.random() for client in range(count)}
        dealt = balance(tasks(count), lambda task, costs=costs: costs[task.client], hosts)
        assert len(dealt) == hosts
        assert sorted(task.client for own in dealt for task in own) == list(range(count))
        assert all(own == sorted(own, key=lambda task: task.client) for own in dealt)
        loads = [sum(costs[task.client] for task in own) for own in dealt]
        assert max(loads) - min(loads) <= max(costs.values(), default=0) + 1e-12


def test_equal_tasks_come_out_even():
    assert [len(own) for own in balance(tasks(10), lambda task: 2.0, 2)] == [5, 5]


def test_tasks_that_cost_nothing_are_spread_too():
    assert sorted(len(own) for own in balance(tasks(4), lambda task: 0.0, 2)) == [2, 2]


def test_an_unmeasured_client_is_counted_in_the_unit_of_the_measured_ones():
    costs = ClientCosts([100, 100, 200])
    fit = [ClientTask(client, Message(), train=True) for client in range(3)]
    assert [costs.of(task) for task in fit] == [100, 100, 200]
    costs.learn(Report(0, train_seconds=0.5))
    assert [costs.of(task) for task in fit] == [0.5, 0.5, 1.0]
    costs.learn(Report(0, train_seconds=7.0))  # the machine was busy with something else
    costs.learn(Report(1, train_seconds=0.3))
    assert [costs.of(task) for task in fit] == [0.5, 0.3, 0.8]


def test_a_fit_and_an_evaluation_cost_their_own_times():
    costs = ClientCosts([10, 10])
    costs.learn(Report(0, train_seconds=2.0))
    assert costs.of(ClientTask(1, Message(), train=True, after_agg=True)) == 2.0
    costs.learn(Report(0, eval_seconds=0.25))
    assert costs.of(ClientTask(1, Message(), train=True, after_agg=True)) == 2.25
    assert costs.of(ClientTask(0, Message(), global_model=True)) == 0.25
    assert costs.of(ClientTask(POOLED, Message(), train=True)) == 4.0


def test_who_has_a_state_stays_where_it_is():
    dealt, moves = homes(2, 1, 1, 0, 1).deal(tasks(4), lambda task: MOVE_SECONDS / 3, movable=True)
    assert clients(dealt) == [[2], [0, 1, 3]]
    assert moves == []


def test_who_has_none_fills_the_gaps():
    dealt, moves = homes(2, 1, 1).deal(tasks(4), lambda task: 1.0, movable=True)
    assert clients(dealt) == [[2, 3], [0, 1]]
    assert moves == []


def test_a_client_moves_with_its_state_where_the_time_that_is_gained_pays_for_it():
    own = homes(2, 0, 0, 0, 0)
    dealt, moves = own.deal(tasks(4), lambda task: 1.0, movable=True)
    assert clients(dealt) == [[2, 3], [0, 1]]
    assert moves == [Relocation(0, 1, 0, 1), Relocation(1, 1, 0, 1)]
    assert own.versions(0) == {2: 1, 3: 1}
    assert own.versions(1) == {0: 1, 1: 1}
    assert own.take_moved(0) == [0, 1]
    assert own.take_moved(0) == own.take_moved(1) == []  # once
    assert own.deal(tasks(4), lambda task: 1.0, movable=True)[1] == []


def test_a_large_state_does_not_move_for_a_small_gain():
    for nbytes, count in ((10**6, 1), (10**9, 0)):
        _, moves = homes(2, 0, 0, 0, 1, nbytes=nbytes).deal(tasks(4), lambda task: 1.0, movable=True)
        assert len(moves) == count


def test_nobody_moves_while_costs_are_not_seconds():
    assert homes(2, 0, 0, 0, 0).deal(tasks(4), lambda task: 50.0, movable=False)[1] == []


@pytest.mark.parametrize("seed", range(5))
def test_moves_make_hosts_more_even(seed):
    draw = random.Random(seed)
    cost = [draw.random() for _ in range(30)]
    own = homes(3, *[draw.randrange(3) for _ in cost])
    loads = lambda dealt: [sum(cost[c] for c in row) for row in clients(dealt)]  # noqa: E731
    before, after = (
        loads(own.deal(tasks(30), lambda task: cost[task.client], movable)[0]) for movable in (False, True)
    )
    assert max(after) <= max(before)
    assert max(after) - min(after) < 0.2
    assert sum(after) == pytest.approx(sum(before))


def test_states_that_were_saved_say_where_clients_are_at_home():
    own = Homes(2)
    own.learn(3, 1, [Report(5, kept=100), Report(6)])
    assert (own.round_saved(5), own.round_saved(6)) == (3, 0)
    assert own.of == {5: Home(1, 3, 100)}
    own.settle({7: (2, 10), 8: (2, 10)}, ClientCosts([1] * 9))
    assert {own.of[7].host, own.of[8].host} == {0, 1}
    assert own.round_saved(8) == 2
