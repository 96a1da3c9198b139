"""Who fails in training is left out as if it had stayed away, a full disk ends no run, and both are said."""

from itertools import product
from math import inf

import pytest
import torch

from fedbench.aggregation.means import weighted_mean
from fedbench.config import Config
from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.messages import Message
from fedbench.results.reader import Records
from fedbench.results.remarks import doubts_in
from fedbench.runtime.drive import drive
from fedbench.runtime.driver import Driver
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.states import checkpoint, trees
from fedbench.studies.run import run
from tests.runtime.accidents import CLASS, CLIENT, Mute, broken, clumsy
from tests.runtime.rounds import described, driver, largest_file, play, small, stop
from tests.runtime.watchful import Watchful

REASONS = {
    "Diverging": "the training loss became nan: lower train.lr_scale, or the rate in Diverging.configure_optimizers",
    "Crashing": "KeyError: 'no such class' (accidents.py:",
    "Quitting": "SystemExit: sys.exit(3) would end the whole command (accidents.py:",
}


def victim(config: Config) -> int:
    resolved = resolve(config)
    config, dataset = resolved.config, resolved.dataset
    drawn = driver(resolved).setup.partition
    return next(c for c, rows in enumerate(drawn.clients) if set(dataset.labels[rows.train]) == {CLASS})


@pytest.mark.parametrize("network", REASONS)
def test_the_run_goes_on_and_says_so(network, tmp_path):
    summary = run(broken(network, out=str(tmp_path)), report=False).summary
    hit = victim(broken(network))
    assert summary["complete"]
    assert [entry[:3] for entry in summary["failed"]] == [[0, 1, hit], [0, 2, hit]]
    assert all(entry[3].startswith(REASONS[network]) for entry in summary["failed"])
    assert [w.partition(": ")[0] for w in summary["warnings"]] == ["seed 0, round 1", "seed 0, round 2"]
    assert all(f"client {hit} was left out: {REASONS[network]}" in w for w in summary["warnings"])
    rows = Records(tmp_path).clients()
    assert not rows[rows["client"] == hit]["participated"].any()
    assert rows[rows["client"] != hit]["participated"].all()
    assert set(rows["client"]) == set(range(10))  # it is evaluated like the others


def test_failures_of_rounds_without_an_evaluation_are_told_with_the_next_one(tmp_path):
    asked = broken("Crashing", out=str(tmp_path), rounds=4, evaluate={"every": 3})
    failed = run(asked, report=False).summary["failed"]
    assert [entry[1] for entry in failed] == [3, 3, 3, 4]
    assert [entry[3].partition(":")[0] for entry in failed] == ["in round 1", "in round 2", "KeyError", "KeyError"]


@pytest.mark.parametrize("network", REASONS)
def test_it_is_left_out_of_the_mean(network, tmp_path):
    resolved = resolve(broken(network, checkpoint={"every": 1}))
    config = resolved.config
    run = driver(resolved, tmp_path)
    run.begin()
    kept = []
    aggregate = run.method.aggregate
    run.method.aggregate = lambda server, own: (kept.extend(own), aggregate(server, own))[1]  # type: ignore[method-assign]
    run.exchange(0)
    assert [upload.client for upload in kept] == [c for c in range(10) if c != victim(config)]
    total = sum(upload.samples for upload in kept)
    mean = weighted_mean([u.params for u in kept], [u.samples / total for u in kept])
    assert torch.equal(run.server.params, mean)
    assert bool(mean.isfinite().all())


def test_a_round_in_which_everybody_fails_keeps_the_model(tmp_path):
    # Only the one client that fails takes part in some round: 0.1 of ten clients.
    config = broken("Crashing", participation=0.1, rounds=12, checkpoint={"every": 0})
    summary = run(config.model_copy(update={"out": tmp_path}), report=False).summary
    rounds = [entry[1] for entry in summary["failed"]]
    assert rounds
    assert any(f"nothing was trained in {len(rounds)} of 12 rounds" in line for line in summary["warnings"])
    metrics = Records(tmp_path).metrics().query("point == 'after_agg'").set_index("round")["test_loss"]
    assert all(metrics[t] == metrics[t - 1] for t in rounds if t > 1)
    assert not Records(tmp_path).clients().query("round in @rounds")["participated"].any()


def test_a_run_that_trained_nothing_says_so_on_its_page_too(tmp_path):
    model = {"name": "tests.runtime.accidents:Resting"}
    result = run(small(model=model, rounds=2, seeds=[0, 1], out=str(tmp_path)))
    said = "seed 1: nothing was trained in 2 of 2 rounds: no client ended a fit with a gradient step"
    assert said in result.summary["warnings"]
    assert said in result.report.read_text()


def test_a_client_that_cannot_be_evaluated_is_reported(tmp_path):
    summary = run(clumsy("personal", rounds=2, out=str(tmp_path)), report=False).summary
    (entry,) = summary["failed"]
    assert entry[:3] == [0, 2, CLIENT]
    assert entry[3].startswith("RuntimeError: cannot be looked at (accidents.py:")
    assert "seed 0, round 2: client 3 was not evaluated: RuntimeError" in summary["warnings"][0]
    seen = Records(tmp_path).clients().query("round == 2 and point == 'after_agg'")
    assert set(seen["client"]) == set(range(10)) - {CLIENT}


def test_a_client_that_does_not_answer_is_reported(tmp_path):
    summary = run(small("tests.runtime.accidents:Mute", rounds=3, out=str(tmp_path)), report=False).summary
    said = [line for line in summary["warnings"] if "did not answer" in line]
    assert [line[: len("seed 0, round 0")] for line in said] == ["seed 0, round 0", "seed 0, round 2"]
    assert [(round, client) for _, round, client, _ in summary["failed"]] == [(1, CLIENT), (2, CLIENT)]


@pytest.mark.parametrize(("every", "rounds_known"), [(1, [1, 2, 3]), (3, [3])])
def test_the_fit_before_one_that_fails_has_its_own_score_or_none(every, rounds_known, tmp_path):
    """Client 3 fails in round 2 only, and in its last fit where there are two rounds."""
    run(clumsy("fit", rounds=3, evaluate={"every": every}, out=str(tmp_path / "whole")), report=False)
    rows = Records(tmp_path / "whole").clients().query(f"point == 'after_fit' and client == {CLIENT}")
    assert list(rows["round"]) == rounds_known
    said = run(
        clumsy("fit", rounds=2, evaluate={"every": every}, save_models=True, out=str(tmp_path / "cut")), report=False
    )
    rows = Records(tmp_path / "cut").clients().query(f"point == 'after_fit' and client == {CLIENT}")
    assert list(rows["round"]) == [number for number in rounds_known if number < 3]
    assert f"save_models: client {CLIENT} has no model at after_fit: its last fit failed" in said.summary["warnings"]
    assert not list(said.models.rglob(f"client-{CLIENT}/after_fit.safetensors"))


def test_outputs_that_are_not_numbers_are_said_once(tmp_path):
    asked = small("fedavg-ft", rounds=2, method__ft_lr=1e18, out=str(tmp_path))
    summary = run(asked, report=False).summary
    line = "seed 0: some outputs at after_agg are not numbers, none of them is correct: lower the learning rates"
    assert summary["warnings"] == [line]
    assert not Records(tmp_path).clients().query("point == 'after_agg'")["test_accuracy"].any()


class Boundless(Mute):
    """The answer of one client is infinite."""

    def answer(self, client):
        found = Watchful.answer(self, client)
        return Message(answer=found.answer + inf) if client.id == CLIENT else found


def test_an_answer_that_is_not_finite_does_not_count(tmp_path):
    summary = run(small("tests.runtime.test_driver:Boundless", rounds=3, out=str(tmp_path)), report=False).summary
    said = f"client {CLIENT} did not answer: the answer's answer holds values that are not finite"
    assert summary["complete"]
    assert sum(said in line for line in summary["warnings"]) == 2


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_a_run_ends_where_every_client_fails_in_the_same_way(seeds, tmp_path):
    """It is said in one line, a run that had got somewhere keeps that, and one that had not leaves nothing."""
    asked = small(train={"lr": 1e20, "epochs": 1}, seeds=seeds, out=str(tmp_path / "new"))
    line = r"^seed 0, round 1: every client \(10\) fails in the same way: the training loss became nan: lower train.lr$"
    with pytest.raises(RunError, match=line):
        run(asked)
    assert not (tmp_path / "new").exists()
    with pytest.raises(
        RunError, match=r"seed 0, round 3: every client \(10\) .*: KeyError: 'tired' .test_driver.py:\d+.$"
    ):
        run(small("tests.runtime.test_driver:Tiring", out=str(tmp_path / "begun")))
    (job,) = (tmp_path / "begun" / "run").iterdir()
    assert set(Records(job).metrics()["round"]) == {1, 2}


def test_arithmetic_of_a_method_that_refuses_a_diverged_fit_is_told_as_divergence(tmp_path):
    """FedKD decomposes what a client has learnt, which fails where that is not finite."""
    asked = small("fedkd", train={"lr": 1e20, "epochs": 1}, rounds=1, out=str(tmp_path / "new"))
    with pytest.raises(RunError, match=r"in the same way: the training loss became nan: lower train.lr$"):
        run(asked, report=False)


class Tiring(FedAvg):
    """Its clients train twice."""

    def train(self, client, received):
        if client.round > 2:
            raise KeyError("tired")
        return super().train(client, received)


@pytest.mark.parametrize(("method", "where"), [("Blind", "round 1"), ("Dumb", "round 0")])
def test_what_fails_in_evaluations_and_answers_of_everybody_ends_a_run_too(method, where, tmp_path):
    with pytest.raises(
        RunError, match=rf"^seed 0, {where}: every client \(10\) .*: RuntimeError: no .test_driver.py:\d+.$"
    ):
        run(small(f"tests.runtime.test_driver:{method}", rounds=1, out=str(tmp_path)), report=False)


class Blind(FedAvg):
    """Nothing of it can be evaluated after the last aggregation."""

    def personal(self, client, model, point):
        if point == "after_agg":
            raise RuntimeError("no")
        return model


class Dumb(Watchful):
    """Nobody answers."""

    def answer(self, client):
        raise RuntimeError("no")


def test_one_client_after_another_fails_in_the_same_way(tmp_path):
    """With one participant in a round, two who fail one after the other end the run; the same one again does not."""
    one = dict(participation=0.1, rounds=12, out=str(tmp_path))
    with pytest.raises(RunError, match=r"every client \(2\) fails in the same way: the training loss became nan"):
        run(small(train={"lr": 1e20, "epochs": 1}, **one), report=False)


def test_fewer_than_half_that_fail_alike_do_not_end_a_run(tmp_path):
    summary = run(small("tests.runtime.test_driver:FewAlike", rounds=2, out=str(tmp_path)), report=False).summary
    assert summary["complete"]
    assert len(summary["failed"]) == 2 * 4


def test_half_that_fail_alike_in_round_1_end_a_run(tmp_path):
    line = r"^seed 0, round 1: 5 of 10 participants fail in the same way: ValueError: 0 .test_driver.py:\d+.$"
    with pytest.raises(RunError, match=line):
        run(small("tests.runtime.test_driver:HalfAlike", rounds=2, out=str(tmp_path)), report=False)


def test_half_that_fail_each_in_another_way_do_not_end_a_run(tmp_path):
    summary = run(small("tests.runtime.test_driver:Manifold", rounds=2, out=str(tmp_path)), report=False).summary
    assert summary["complete"]
    assert len(summary["failed"]) == 2 * 5


def test_a_run_in_which_most_clients_never_trained_is_no_result(tmp_path):
    """Too few fail alike to end it in round 1."""
    config = small("tests.runtime.test_driver:Untrained", rounds=2, out=str(tmp_path))
    line = (
        r"^seed 0: the run is no result: 6 of 10 clients that were to train never completed a fit; the first, client 0"
    )
    with pytest.raises(RunError, match=line):
        run(config, report=False)


class FewAlike(FedAvg):
    """Four of ten clients fail, in the same way."""

    def train(self, client, received):
        if client.id < 4:
            raise KeyError(client.id)
        return super().train(client, received)


WAYS = (KeyError, ValueError, IndexError, TypeError, ZeroDivisionError)


class Manifold(FedAvg):
    """Five of ten clients fail, each in another way."""

    def train(self, client, received):
        if client.id < len(WAYS):
            raise WAYS[client.id](client.id)
        return super().train(client, received)


class Untrained(FedAvg):
    """Six of ten clients fail, three in each of two ways."""

    def train(self, client, received):
        if client.id < 6:
            raise WAYS[client.id % 2](client.id)
        return super().train(client, received)


class HalfAlike(FedAvg):
    """Half of the clients fail in the same way."""

    def train(self, client, received):
        if client.id % 2 == 0:
            raise ValueError(client.id)
        return super().train(client, received)


def test_too_few_answers_are_a_remark(tmp_path):
    config = small("tests.runtime.accidents:Secretive", rounds=3, method__tau=2, method__endpoints=3)
    summary = run(config.model_copy(update={"out": tmp_path}), report=False).summary
    line = "floco: 2 clients answered, too few for a projection: all are treated alike"
    assert summary["warnings"][-1] == summary["doubts"][-1] == line


def test_failures_survive_a_stop(tmp_path):
    config = clumsy("fit", checkpoint={"every": 1})
    described(config, tmp_path / "b")
    stop(config, tmp_path / "b", 4)
    kept = checkpoint.load(tmp_path / "b" / "checkpoint")
    assert kept is not None
    assert any("the state is broken" in line for line in kept["recorder"]["doubts"])
    whole, later = (run(config.model_copy(update={"out": tmp_path / name}), report=False) for name in "ab")
    assert later.summary["doubts"] == whole.summary["doubts"] != []


class Remarking(FedAvg):
    """Has something to say after every aggregation."""

    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)
        server.warn("always the same")
        server.warn(f"round {server.round}")


def test_warnings_of_a_method_are_said_once(tmp_path):
    resolved = resolve(small("tests.runtime.test_driver:Remarking", rounds=2))
    said = drive(resolved, tmp_path, InProcess())
    assert [line for line in said if line in ("always the same", "round 1", "round 2")] == [
        "always the same",
        "round 1",
        "round 2",
    ]
    assert {"always the same", "round 1", "round 2"} <= {*doubts_in(said)}


def test_the_run_goes_on_and_says_so_when_the_disk_is_full(tmp_path, monkeypatch):
    """The disk is full in rounds 3 and 4; a stop after them goes on from round 2."""
    wide = {"model": {"name": "mlp", "hidden": 6000}, "checkpoint": {"every": 1}, "rounds": 5}  # 1.8 MB a client
    resolved = resolve(small("local", **wide))
    (tmp_path / "a").mkdir()
    checkpoint, folder = Driver._checkpoint, tmp_path / "a/checkpoint"

    def with_little_room(driver: Driver) -> None:
        round = driver.record.number
        with largest_file(12_000_000 if round in (3, 4) else 10**9):
            checkpoint(driver)
        found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*-*") if "rows" not in path.parts)
        assert found == [f"round-00000{min(round, 2)}.safetensors", f"states/00000{min(round, 2)}-0.safetensors"]

    monkeypatch.setattr(Driver, "_checkpoint", with_little_room)
    warnings = drive(resolved, tmp_path / "a", InProcess())
    monkeypatch.undo()
    assert len(warnings) == 2
    assert all("could not be written" in line and "the run continues" in line for line in warnings)
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == play(small("local", **wide), tmp_path / "b")["metrics.jsonl"]


@pytest.mark.parametrize(
    ("method", "engine"),
    [*product(["fedrep", "fedbn", "fedpac", "pfedfda"], ["loop"]), ("fedpac", "trainer"), ("fedper", "compiled")],
)
def test_a_compiled_part_changes_no_number(method, engine, tmp_path):
    given = {"name": "tests.runtime.networks:Parted", "head": "net.head"}
    optimizer = "sgd" if engine == "compiled" else "module"
    runs = [
        play(
            small(method, rounds=2, train__engine=engine, train__optimizer=optimizer, model={**given, "compiled": own}),
            tmp_path / str(own),
        )
        for own in (False, True)
    ]
    assert runs[0] == runs[1]


def test_manual_optimisation_has_trained_and_its_loss_is_unknown(tmp_path):
    asked = small(rounds=2, train__engine="trainer", train__optimizer="module", model="tests.runtime.networks:Manual")
    result = run(asked.model_copy(update={"out": tmp_path}), report=False)
    fits = result.metrics[result.metrics["point"] == "after_fit"]
    assert (fits["steps"] > 0).all()
    assert fits["train_loss"].isna().all()
    assert not any("nothing was trained" in line for line in result.summary["warnings"])


def test_a_longer_run_has_no_score_of_a_fit_that_it_would_not_have_evaluated():
    """Round 5 was the last of a shorter run; of eight rounds, the fourth and the eighth are evaluated."""
    longer = driver(resolve(small(rounds=8, participation=0.4, evaluate={"every": 4})))
    score = {"test": {"accuracy": (1.0, 2.0)}}
    longer.scores.last_fit = {client: (5 if client < 9 else 0, score) for client in range(10)}
    longer.scores.forget_early_end()
    again = set().union(*map(longer.calendar.participants, (6, 7, 8)))
    assert {client for client, (_, scores) in longer.scores.last_fit.items() if not scores} == again - {9}
    assert again - {9} < set(range(9))


def test_hosts_know_how_large_states_and_messages_may_become(tmp_path):
    run = driver(resolve(small("fedcac", participation=0.5)), tmp_path)
    model = trees.nbytes(run.initial)
    assert run.setup.state_bytes == run.context.clients * model
    assert run.setup.message_bytes == 2 * run.context.participants_per_round * model < 2 * run.setup.state_bytes


class Allocating(InProcess):
    """Counts what the server allocates."""

    allocated = 0

    def empty_like(self, tensor):
        self.allocated += 1
        return super().empty_like(tensor)


def test_the_hosts_allocate_what_the_server_sends_to_single_clients(tmp_path):
    hosts = Allocating()
    play(small("fedamp", rounds=2), tmp_path, hosts)
    assert hosts.allocated == 2 * 10  # parameters and buffers of every client, once
