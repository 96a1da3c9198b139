"""The driver: the exchanges of a run. Nothing here knows any method."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import partition
from fedbench.learner.learner import Score
from fedbench.methods.base import POOL, Message, Server, Upload
from fedbench.results.records import MetricsLine
from fedbench.runtime import checkpoint
from fedbench.runtime.build import build_learner, make_context, make_method
from fedbench.runtime.cautions import tied, unheeded
from fedbench.runtime.exchange import Order, Reply, Report, RoundRecord, Scores, Setup, Task
from fedbench.runtime.host import resident_mb
from fedbench.runtime.hosts import Hosts, torch_threads
from fedbench.runtime.placement import Costs, Homes
from fedbench.runtime.recorder import Recorder
from fedbench.runtime.sampling import evaluated, participants

Event = dict[str, Any]


def drive(
    config: Config,
    folder: Path,
    hosts: Hosts,
    dataset: Dataset,
    on_event: Callable[[Event], None] | None = None,
    resume: bool = False,
) -> list[str]:
    """Run a configuration, seed after seed, into a folder; returns the warnings.

    on_event: told of every evaluated round. resume: go on from the checkpoint, if there is one.
    """
    recorder, on_event = Recorder(folder), on_event or (lambda event: None)
    found = checkpoint.load(folder / "checkpoint") if resume else None
    if found:
        recorder.restore(found[1]["recorder"])
        recorder.write_tables()
        on_event({"restored": True})
    else:
        recorder.start()
    for seed in config.seeds:
        if found and seed in found[1]["done"]:
            continue
        driver = Driver(config, seed, hosts, dataset, recorder, on_event)
        driver.run(found if found and found[1]["seed"] == seed else None)
        driver.keep_finished()
    recorder.write_tables()
    tell_restarts(hosts, on_event)
    return recorder.warnings


def tell_restarts(hosts: Hosts, on_event: Callable[[Event], None]) -> None:
    for text in hosts.restarts:
        on_event({"note": text})
    hosts.restarts.clear()


class Driver:
    """Runs one configuration with one seed. on_event: told of every evaluated round."""

    def __init__(
        self,
        config: Config,
        seed: int,
        hosts: Hosts,
        dataset: Dataset,
        recorder: Recorder,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.config, self.seed, self.hosts = config, seed, hosts
        self.recorder, self.on_event = recorder, on_event
        self.partition = partition(dataset, config, seed)
        learner = build_learner(config, dataset, seed)
        context = make_context(config, dataset, self.partition, seed, learner)
        self.method = make_method(config, context)
        self.method.check()
        self.said_first = [
            *dataset.notes,
            *self.partition.notes,
            *learner.warnings(context.sizes),
            *unheeded(config, self.method),
            *tied(self.method),
            *self.method.warnings(),
        ]
        self.server = Server(context, learner.initial())
        self.everyone = evaluated(seed, context.clients, config.evaluate.clients)
        self.costs, self.homes = Costs(context.sizes), Homes(hosts.count)
        self.last_fit: dict[int, Scores] = {}
        self.record = RoundRecord()

    # -- the exchanges ------------------------------------------------------------------------------------------------

    def run(self, kept: tuple[Path, dict[str, Any]] | None = None) -> None:
        """All exchanges, or those after a checkpoint: its folder and the driver's part of it."""
        with torch_threads(self.config.train.threads):
            self.begin(kept)
            for number in range(self.record.number, self.config.rounds + 1):
                self.exchange(number)
            self.end()

    def begin(self, kept: tuple[Path, dict[str, Any]] | None = None) -> None:
        """Set up hosts and server."""
        self.hosts.begin(Setup(self.config, self.seed, self.partition))
        for line in self.said_first:
            self.warn(line)
        if kept:
            self._restore(*kept)
        else:
            self.method.open(self.server)
            self._extra_pass(0)

    def end(self) -> None:
        """Say whether anything was trained, and let go of what only this run needed."""
        if self.record.idle:
            share = f"{self.record.idle} of {self.config.rounds} rounds"
            self.warn(f"seed {self.seed}: nothing was trained in {share}: no client ended a fit with a gradient step")
        self.hosts.end()

    def exchange(self, number: int) -> None:
        """One message to every host and back: a model is evaluated, and the next one trained out of it."""
        begun = time.perf_counter()
        last = number >= self.config.rounds
        # 1. who trains, who is evaluated
        self.server.round = number + 1
        self.server.participants = [] if last else self.drawn(number + 1)
        trainers = [] if last else self.method.trainers(self.server.participants)
        evaluate = self.everyone if self._due(number) else []
        if last and not evaluate:
            return
        # 2. the model goes out
        self.method.prepare(self.server)
        tasks = self._tasks(number, trainers, evaluate)
        dealt, moves = self.homes.deal(tasks, self.costs.of, self.costs.measured)
        global_model = self._global_model() if evaluate else None
        orders = [Order(number, own, global_model, gone=self.homes.told(host)) for host, own in enumerate(dealt)]
        sent = time.perf_counter()
        # 3. the hosts work
        replies = self.hosts.exchange(orders, moves)
        received = time.perf_counter()
        reports = sorted((report for reply in replies for report in reply.reports), key=lambda report: report.client)
        # 4. the round that made the model is known
        self._note_unevaluated(trainers, reports)
        lines = self._record(reports) if evaluate else []
        self.recorder.write_lines(lines)  # before the checkpoint, which knows them
        told = self.record.traces
        logged = time.perf_counter()
        # 5. the server half makes the next model
        if not last:
            for host, reply in enumerate(replies):
                self.homes.learn(number + 1, host, reply.reports)
            self._aggregate(trainers, reports, tasks)
            self._extra_pass(number + 1)
        aggregated = time.perf_counter()
        self._checkpoint()
        ended = time.perf_counter()
        seconds = dict(
            server=sent - begun + aggregated - logged,
            exchange=received - sent,
            log=logged - received + ended - aggregated,
            total=ended - begun,
        )
        self._finish(number, lines, told, replies, seconds)

    def drawn(self, round: int) -> list[int]:
        return participants(self.seed, round, self.server.context.clients, self.config.participation)

    def _due(self, round: int) -> bool:
        """Whether the models of this round are evaluated."""
        return round >= 1 and (round % self.config.evaluate.every == 0 or round == self.config.rounds)

    def _last_fits(self, clients: set[int], round: int) -> set[int]:
        """Those of the clients whose model of this round is still their newest when after_fit is next reported."""
        while clients and not self._due(round):
            round += 1
            clients = clients.difference(self.drawn(round))
        return clients

    # -- messages -----------------------------------------------------------------------------------------------------

    def _tasks(self, number: int, trainers: Sequence[int], evaluate: Sequence[int]) -> list[Task]:
        reports_agg = self.method.reports("after_agg", number)
        has_global = bool(evaluate) and self._global_model() is not None
        fit_counts = self.method.after_fit == "fit"
        seen, drawn = set(evaluate), set(trainers)
        shown = self._last_fits(drawn.intersection(self.everyone), number + 1) if fit_counts else set()
        return [
            Task(
                client,
                self.method.download(self.server, client),
                self.homes.kept(client),
                evaluate_agg=client in seen and reports_agg,
                evaluate_global=client in seen and has_global,
                evaluate_initial=client in seen and fit_counts and client not in self.last_fit,
                fit=client in drawn,
                evaluate_fit=client in shown,
            )
            for client in sorted(seen | drawn)
        ]

    def _global_model(self) -> Message | None:
        weights = self.method.global_weights(self.server)
        if weights is None or self.method.personal_is_global:
            return None
        return Message(vars(weights))

    def _extra_pass(self, number: int) -> None:
        """An exchange without training over all clients, if the method asks for one; its bytes count."""
        question = self.method.survey(self.server)
        if question is None:
            return
        tasks = [Task(client, Message(), self.homes.kept(client)) for client in range(self.server.context.clients)]
        dealt, _ = self.homes.deal(tasks, self.costs.of, movable=False)
        orders = [Order(number, own, question=question, gone=self.homes.told(host)) for host, own in enumerate(dealt)]
        reports = [report for reply in self.hosts.exchange(orders) for report in reply.reports]
        answers = {r.client: r.answer for r in sorted(reports, key=lambda r: r.client) if r.answer is not None}
        self.record.bytes_down += question.wire_bytes() * len(tasks)
        self.record.bytes_up += sum(answer.wire_bytes() for answer in answers.values())
        self.method.conclude(self.server, answers)

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _aggregate(self, trainers: Sequence[int], reports: Sequence[Report], tasks: Sequence[Task]) -> None:
        """Make the next model of the uploads, and begin the record of its round."""
        round, before = self.server.round, self.record
        uploads: list[Upload] = [report.upload for report in reports if report.upload is not None]
        failed = [(r.client, r.failure) for r in reports if r.failure is not None and r.client in trainers]
        for client, reason in failed:
            self.warn(f"seed {self.seed}, round {round}: client {client} was left out: {reason}")
        fits = [report for report in reports if report.steps and report.upload is not None]
        asked = before if round == 1 else RoundRecord()  # bytes of an extra pass before round 1 count as round 1's
        self.record = RoundRecord(
            number=round,
            idle=before.idle + (not fits),
            took_part=list(self.server.participants) if POOL in trainers else [u.client for u in uploads],
            train_loss=sum(r.loss for r in fits if r.loss is not None) / len(fits) if fits else None,
            steps=sum(report.steps for report in fits),
            bytes_up=asked.bytes_up + sum(upload.wire_bytes() for upload in uploads),
            bytes_down=asked.bytes_down + sum(task.download.wire_bytes() for task in tasks if task.fit),
            failed=[*([] if self._due(before.number) else before.dated()), *failed],
        )
        for report in reports:
            self.costs.learn(report)
            if "after_fit" in report.scores:
                self.last_fit[report.client] = report.scores["after_fit"]
            if report.upload is not None:
                logged = {f"logged/{k}": v for k, v in report.logged.items()}
                self.record.traces.update({(report.client, k): v for k, v in (report.upload.traces | logged).items()})
        if uploads:
            self.method.aggregate(self.server, uploads)
            for line in self.method.remarks(self.server):
                self.warn(line)
        if self._due(round):
            self.record.traces.update(self.method.traces(self.server))

    def _note_unevaluated(self, trainers: Sequence[int], reports: Sequence[Report]) -> None:
        """Failures of clients that were only to be evaluated."""
        for report in reports:
            if report.failure is not None and report.client not in trainers:
                where = f"seed {self.seed}, round {self.record.number}"
                self.warn(f"{where}: client {report.client} was not evaluated: {report.failure}")
                self.record.failed.append((report.client, report.failure))

    def _record(self, reports: Sequence[Report]) -> list[MetricsLine]:
        """The lines of the round that made the model, and its rows per client."""
        record, took_part = self.record, set(self.record.took_part)
        agg = {r.client: r.scores["after_agg"] for r in reports if "after_agg" in r.scores}
        whole = {r.client: r.scores["global"] for r in reports if "global" in r.scores}
        if self.method.personal_is_global and self.method.global_weights(self.server) is not None:
            whole = agg
        for report in reports:
            if "initial" in report.scores:
                self.last_fit[report.client] = report.scores["initial"]
        trained = {client: self.last_fit[client] for client in self.everyone if client in self.last_fit}
        fit = {"fit": trained, "after_agg": agg, "global": whole}[self.method.after_fit]
        cost = {name: getattr(record, name) for name in ("train_loss", "steps", "bytes_up", "bytes_down")}
        lines = []
        for point, scores in (("after_fit", fit), ("after_agg", agg), ("global", whole)):
            if scores:
                more: dict[str, Any] = cost if point == "after_fit" else {}
                lines.append(self.recorder.line(self.seed, record.number, point, scores, **more, failed=record.failed))
                self.recorder.add_clients(self.seed, record.number, point, scores, took_part)
        self.recorder.add_traces(self.seed, record.number, record.traces)
        return lines

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        every, round = self.config.checkpoint.every, self.record.number
        if not every or round % every or not 0 < round < self.config.rounds:
            return
        versions = [self.homes.versions(host) for host in range(self.hosts.count)]
        content = {
            "seed": self.seed,
            "done": self.config.seeds[: self.config.seeds.index(self.seed)],
            "server": self.server.state(),
            "record": vars(self.record),
            "last_fit": {
                c: {s: (v.accuracy, v.loss, v.count) for s, v in scores.items()} for c, scores in self.last_fit.items()
            },
            "kept": {client: (home.kept, home.nbytes) for client, home in self.homes.of.items()},
            "recorder": self.recorder.state(),
        }
        self.save(round, content, lambda folder: self.hosts.snapshot(versions, folder))

    def save(self, round: int, content: dict[str, Any], more: Callable[[Path], None] = lambda folder: None) -> None:
        """Write a checkpoint; a full disk costs the checkpoint, not the run."""
        try:
            self.recorder.write_tables()
            checkpoint.save(self.recorder.folder / "checkpoint", round, content, more)
        except OSError as error:
            self.warn(f"{error}; the run goes on, the checkpoint before it stays")

    def keep_finished(self) -> None:
        """Note that this seed is done, where there are more of them."""
        done = self.config.seeds[: self.config.seeds.index(self.seed) + 1]
        if self.config.checkpoint.every and len(done) < len(self.config.seeds):
            self.save(0, {"seed": None, "done": done, "recorder": self.recorder.state()})

    def _restore(self, folder: Path, kept: dict[str, Any]) -> None:
        self.server.restore(kept["server"])
        self.record = RoundRecord(**kept["record"])
        self.last_fit = {c: {s: Score(*v) for s, v in scores.items()} for c, scores in kept["last_fit"].items()}
        self.homes.settle(kept["kept"], self.costs)
        self.hosts.restore([self.homes.versions(host) for host in range(self.hosts.count)], folder)

    def _finish(
        self,
        number: int,
        lines: list[MetricsLine],
        traces: dict[tuple[int, str], float],
        replies: list[Reply],
        seconds: dict[str, float],
    ) -> None:
        """Write what the exchange took and tell who watches."""
        busy = [reply.busy_seconds for reply in replies]
        timing = {
            "seed": self.seed,
            "exchange": number,
            "train": max(reply.train_seconds for reply in replies),
            "comm": max(0.0, seconds["exchange"] - max(busy)),
            "server": seconds["server"],
            "eval": max(reply.eval_seconds for reply in replies),
            "log": seconds["log"],
            "total": seconds["total"],
            "host_busy": [round(b, 6) for b in busy],
            "rss_mb": sum({os.getpid(): resident_mb(), **{reply.process: reply.rss_mb for reply in replies}}.values()),
        }
        self.recorder.write_timing(timing)
        tell_restarts(self.hosts, self.on_event)
        if lines:
            rows = [
                dict(seed=self.seed, round=number, client=client, name=name, value=value)
                for (client, name), value in traces.items()
            ]
            event = dict(seed=self.seed, round=number, rounds=self.config.rounds, lines=lines, traces=rows)
            self.on_event({**event, "seconds": seconds["total"]})

    def warn(self, text: str) -> None:
        """Say a line once."""
        if text not in self.recorder.warnings:
            self.recorder.warnings.append(text)
            self.on_event({"note": text})
