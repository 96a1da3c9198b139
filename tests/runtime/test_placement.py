"""Work is dealt evenly."""

import random

import pytest

from fedbench.methods.base import POOL, Message
from fedbench.runtime.host import Report, Task
from fedbench.runtime.placement import Costs, balance


def tasks(count: int) -> list[Task]:
    return [Task(client, Message()) for client in range(count)]


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
    costs = Costs([100, 100, 200])
    fit = [Task(client, Message(), fit=True) for client in range(3)]
    assert [costs.of(task) for task in fit] == [100, 100, 200]
    costs.learn(Report(0, fit_seconds=0.5))
    assert [costs.of(task) for task in fit] == [0.5, 0.5, 1.0]
    costs.learn(Report(0, fit_seconds=7.0))  # the machine was busy with something else
    costs.learn(Report(1, fit_seconds=0.3))
    assert [costs.of(task) for task in fit] == [0.5, 0.3, 0.8]


def test_a_fit_and_an_evaluation_cost_their_own_times():
    costs = Costs([10, 10])
    costs.learn(Report(0, fit_seconds=2.0))
    assert costs.of(Task(1, Message(), fit=True, evaluate_agg=True)) == 2.0
    costs.learn(Report(0, eval_seconds=0.25))
    assert costs.of(Task(1, Message(), fit=True, evaluate_agg=True)) == 2.25
    assert costs.of(Task(0, Message(), evaluate_global=True)) == 0.25
    assert costs.of(Task(POOL, Message(), fit=True)) == 4.0
