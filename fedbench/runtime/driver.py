"""The driver: the rounds of a run. Nothing here knows any method."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import partition
from fedbench.learner.learner import Score
from fedbench.methods.base import POOL, Message, Server, Upload
from fedbench.results.records import MetricsLine
from fedbench.runtime import checkpoint
from fedbench.runtime.cautions import tied, unheeded
from fedbench.runtime.host import (
    Order,
    Reply,
    Report,
    Scores,
    Setup,
    Task,
    build_learner,
    make_context,
    make_method,
    resident_mb,
)
from fedbench.runtime.placement import Costs, Hosts, balance
from fedbench.runtime.recorder import Recorder
from fedbench.runtime.sampling import evaluated, participants
from fedbench.runtime.states import shared_folder

Event = dict[str, Any]


@dataclass
class Pending:
    """What is known of a round before its personal models are evaluated, which happens with the next round's fits.

    idle: in how many rounds so far no client took a gradient step.
    """

    round: int = 0
    idle: int = 0
    took_part: list[int] = field(default_factory=list)
    train_loss: float | None = None
    steps: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    traces: dict[tuple[int, str], float] = field(default_factory=dict)

    def dated(self) -> list[tuple[int, str]]:
        """The failures of a round that is not evaluated, to be told with a later one."""
        return [
            (c, text if text.startswith("in round ") else f"in round {self.round}: {text}") for c, text in self.failed
        ]


class Driver:
    """Runs one configuration, seed after seed, into a folder.

    config: resolved. on_event: told of every evaluated round. resume: go on from the checkpoint, if there is one.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        hosts: Hosts,
        dataset: Dataset,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.config, self.folder, self.hosts, self.dataset = config, folder, hosts, dataset
        self.on_event = on_event or (lambda event: None)
        self.recorder = Recorder(folder)

    def run(self, resume: bool = False) -> list[str]:
        """All seeds; returns the warnings."""
        kept = checkpoint.load(self.folder / "checkpoint") if resume else None
        if kept:
            self.recorder.restore(kept["recorder"])
            self.recorder.write_tables()
            self.on_event({"restored": True})
        else:
            self.recorder.start()
        for seed in self.config.seeds:
            if kept and seed in kept["done"]:
                continue
            mine = kept if kept and kept["seed"] == seed else None
            SeedRun(self, seed).run(mine)
            self._keep_finished(seed)
        self.recorder.write_tables()
        self.warn_of_restarts()
        return self.recorder.warnings

    def _keep_finished(self, seed: int) -> None:
        done = self.config.seeds[: self.config.seeds.index(seed) + 1]
        if self.config.checkpoint.every and len(done) < len(self.config.seeds):
            self.save(0, {"seed": None, "done": done, "recorder": self.recorder.state()})

    def save(self, round: int, content: dict[str, Any]) -> None:
        """Write a checkpoint; a full disk costs the checkpoint, not the run."""
        try:
            self.recorder.write_tables()
            checkpoint.save(self.folder / "checkpoint", round, content)
        except OSError as error:
            self.warn(f"{error}; the run goes on, the checkpoint before it stays")

    def warn(self, text: str) -> None:
        """Say a line once."""
        if text not in self.recorder.warnings:
            self.recorder.warnings.append(text)
            self.on_event({"note": text})

    def warn_of_restarts(self) -> None:
        for text in self.hosts.restarts:
            self.on_event({"note": text})
        self.hosts.restarts.clear()


class SeedRun:
    """One seed of a run."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.driver, self.config, self.hosts, self.seed = driver, driver.config, driver.hosts, seed
        self.recorder = driver.recorder
        self.partition = partition(driver.dataset, self.config, seed)
        learner = build_learner(self.config, driver.dataset, seed)
        context = make_context(self.config, driver.dataset, self.partition, seed, learner)
        self.method = make_method(self.config, context)
        self.method.check()
        self.notes = [*learner.warnings(context.sizes), *unheeded(self.config, self.method), *tied(self.method)]
        self.server = Server(context, learner.initial())
        self.everyone = evaluated(seed, context.clients, self.config.evaluate.clients)
        self.costs = Costs(context.sizes)
        self.last_fit: dict[int, Scores] = {}
        self.pending = Pending()

    # -- the rounds ---------------------------------------------------------------------------------------------------

    def run(self, kept: dict[str, Any] | None) -> None:
        """Rounds 1 to T, then one more message for the evaluation of the last."""
        self.begin(kept)
        for round in range(self.server.round + 1, self.config.rounds + 2):
            self.round(round)
        self.end()

    def begin(self, kept: dict[str, Any] | None = None) -> None:
        """Set up hosts and server, from a checkpoint if there is one."""
        self._shared = shared_folder(self.config.key(), self.seed) if self.hosts.share_states else None
        self.hosts.begin(Setup(self.config, self.seed, self.partition, self._shared))
        for line in (*self.driver.dataset.notes, *self.partition.notes, *self.notes, *self.method.warnings()):
            self.driver.warn(line)
        self._open(kept)

    def end(self) -> None:
        """Give back what only this seed needed, and say whether it was trained at all."""
        if self.pending.idle:
            share = f"{self.pending.idle} of {self.config.rounds} rounds"
            self.driver.warn(
                f"seed {self.seed}: nothing was trained in {share}: no client ended a fit with a gradient step"
            )
        if self._shared:
            checkpoint.remove(self._shared)

    def _open(self, kept: dict[str, Any] | None) -> None:
        if kept is None:
            self.method.open(self.server)
            self._survey(0)
            return
        self.server.restore(kept["server"])
        self.hosts.put_states(kept["states"], self.server.round)
        self.pending = Pending(**kept["pending"])
        self.last_fit = {c: {s: Score(*v) for s, v in scores.items()} for c, scores in kept["last_fit"].items()}

    def round(self, round: int) -> None:
        """One message to every host and back: personal models of the round before, then this round's fits."""
        begun = time.perf_counter()
        last = round > self.config.rounds
        # 1. who takes part, who is evaluated
        self.server.round = round
        self.server.participants = [] if last else self.drawn(round)
        trainers = [] if last else self.method.trainers(self.server.participants)
        evaluate = self.everyone if self._due(round - 1) else []
        if last and not evaluate:
            return
        # 2. downloads
        self.method.prepare(self.server)
        orders = self._orders(round, trainers, evaluate)
        sent = time.perf_counter()
        # 3. the hosts work
        replies = self.hosts.run(orders)
        received = time.perf_counter()
        reports = sorted((report for reply in replies for report in reply.reports), key=lambda report: report.client)
        # 4. records of the round before, whose personal models are evaluated now
        self._note_unevaluated(round - 1, trainers, reports)
        lines = self._record(round - 1, reports) if evaluate else []
        self.recorder.write_lines(lines)  # before the checkpoint, which knows them
        logged = time.perf_counter()
        # 5. the server half
        if not last:
            self._aggregate(round, trainers, reports, orders)
            self._survey(round)
        aggregated = time.perf_counter()
        self._checkpoint(round)
        ended = time.perf_counter()
        self._finish(
            round - 1,
            lines,
            replies,
            server=sent - begun + aggregated - logged,
            exchange=received - sent,
            log=logged - received + ended - aggregated,
            total=ended - begun,
        )

    def drawn(self, round: int) -> list[int]:
        return participants(self.seed, round, self.server.context.clients, self.config.participation)

    def _due(self, round: int) -> bool:
        """Whether the models after this round are evaluated."""
        return round >= 1 and (round % self.config.evaluate.every == 0 or round == self.config.rounds)

    def _next_due(self, round: int) -> int:
        every = self.config.evaluate.every
        return min(-(-round // every) * every, max(round, self.config.rounds))

    def _last_fits(self, clients: set[int], round: int) -> set[int]:
        """Those of the clients whose model of this round is still their newest when after_fit is next reported."""
        for later in range(round + 1, self._next_due(round) + 1):
            if not clients:
                break
            clients = clients.difference(self.drawn(later))
        return clients

    # -- messages -----------------------------------------------------------------------------------------------------

    def _orders(self, round: int, trainers: Sequence[int], evaluate: Sequence[int]) -> list[Order]:
        reports_agg = self.method.reports("after_agg", round - 1)
        global_model = self._global_model() if evaluate else None
        fit_counts = self.method.after_fit == "fit"
        seen, drawn = set(evaluate), set(trainers)
        shown = self._last_fits(drawn.intersection(self.everyone), round) if fit_counts else set()
        tasks = [
            Task(
                client,
                self.method.download(self.server, client),
                evaluate_agg=client in seen and reports_agg,
                evaluate_global=client in seen and global_model is not None,
                evaluate_initial=client in seen and fit_counts and client not in self.last_fit,
                fit=client in drawn,
                evaluate_fit=client in shown,
            )
            for client in sorted(seen | drawn)
        ]
        return [Order(round, dealt, global_model) for dealt in balance(tasks, self.costs.of, self.hosts.count)]

    def _global_model(self) -> Message | None:
        weights = self.method.global_weights(self.server)
        if weights is None or self.method.personal_is_global:
            return None
        return Message(vars(weights))

    def _survey(self, round: int) -> None:
        """An extra pass over all clients, if the method asks for one; its bytes count."""
        question = self.method.survey(self.server)
        if question is None:
            return
        tasks = [Task(client, Message()) for client in range(self.server.context.clients)]
        orders = [Order(round, dealt, question=question) for dealt in balance(tasks, self.costs.of, self.hosts.count)]
        reports = [report for reply in self.hosts.run(orders) for report in reply.reports]
        answers = {r.client: r.answer for r in sorted(reports, key=lambda r: r.client) if r.answer is not None}
        self.pending.bytes_down += question.wire_bytes() * len(tasks)
        self.pending.bytes_up += sum(answer.wire_bytes() for answer in answers.values())
        self.method.conclude(self.server, answers)

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _aggregate(
        self, round: int, trainers: Sequence[int], reports: Sequence[Report], orders: Sequence[Order]
    ) -> None:
        uploads: list[Upload] = [report.upload for report in reports if report.upload is not None]
        failed = [(r.client, r.failure) for r in reports if r.failure is not None and r.client in trainers]
        for client, reason in failed:
            self.driver.warn(f"seed {self.seed}, round {round}: client {client} was left out: {reason}")
        unsaid = [] if self._due(self.pending.round) else self.pending.dated()
        fits = [report for report in reports if report.steps and report.upload is not None]
        downloads = [task.download for order in orders for task in order.tasks if task.fit]
        asked = self.pending if round == 1 else Pending()  # bytes of a survey before round 1 count as round 1's
        self.pending = Pending(
            round=round,
            idle=self.pending.idle + (not fits),
            took_part=list(self.server.participants) if POOL in trainers else [u.client for u in uploads],
            train_loss=sum(r.loss for r in fits if r.loss is not None) / len(fits) if fits else None,
            steps=sum(report.steps for report in fits),
            bytes_up=asked.bytes_up + sum(upload.wire_bytes() for upload in uploads),
            bytes_down=asked.bytes_down + sum(download.wire_bytes() for download in downloads),
            failed=[*unsaid, *failed],
        )
        for report in reports:
            self.costs.learn(report)
            if "after_fit" in report.scores:
                self.last_fit[report.client] = report.scores["after_fit"]
            if report.upload is not None:
                logged = {f"logged/{k}": v for k, v in report.logged.items()}
                self.pending.traces.update({(report.client, k): v for k, v in (report.upload.traces | logged).items()})
        if uploads:
            self.method.aggregate(self.server, uploads)
            for line in self.method.remarks(self.server):
                self.driver.warn(line)
        if self._due(round):
            self.pending.traces.update(self.method.traces(self.server))

    def _note_unevaluated(self, round: int, trainers: Sequence[int], reports: Sequence[Report]) -> None:
        """Failures of clients that were only to be evaluated."""
        for report in reports:
            if report.failure is not None and report.client not in trainers:
                self.driver.warn(
                    f"seed {self.seed}, round {round}: client {report.client} was not evaluated: {report.failure}"
                )
                self.pending.failed.append((report.client, report.failure))

    def _record(self, round: int, reports: Sequence[Report]) -> list[MetricsLine]:
        """The lines of a round, and its rows per client."""
        took_part = set(self.pending.took_part)
        agg = {r.client: r.scores["after_agg"] for r in reports if "after_agg" in r.scores}
        whole = {r.client: r.scores["global"] for r in reports if "global" in r.scores}
        if self.method.personal_is_global and self.method.global_weights(self.server) is not None:
            whole = agg
        for report in reports:
            if "initial" in report.scores:
                self.last_fit[report.client] = report.scores["initial"]
        trained = {client: self.last_fit[client] for client in self.everyone if client in self.last_fit}
        fit = {"fit": trained, "after_agg": agg, "global": whole}[self.method.after_fit]
        cost = dict(
            train_loss=self.pending.train_loss,
            steps=self.pending.steps,
            bytes_up=self.pending.bytes_up,
            bytes_down=self.pending.bytes_down,
        )
        lines = []
        for point, scores in (("after_fit", fit), ("after_agg", agg), ("global", whole)):
            if scores:
                more: dict[str, Any] = cost if point == "after_fit" else {}
                lines.append(self.recorder.line(self.seed, round, point, scores, **more, failed=self.pending.failed))
                self.recorder.add_clients(self.seed, round, point, scores, took_part)
        self.recorder.add_traces(self.seed, round, self.pending.traces)
        self._traces_told = self.pending.traces
        return lines

    def _checkpoint(self, round: int) -> None:
        every = self.config.checkpoint.every
        if not every or round % every or round >= self.config.rounds:
            return
        content = {
            "seed": self.seed,
            "done": self.config.seeds[: self.config.seeds.index(self.seed)],
            "server": self.server.state(),
            "states": self.hosts.get_states(round),
            "pending": vars(self.pending),
            "last_fit": {
                c: {s: (v.accuracy, v.loss, v.count) for s, v in scores.items()} for c, scores in self.last_fit.items()
            },
            "recorder": self.recorder.state(),
        }
        self.driver.save(round, content)

    def _finish(self, round: int, lines: list[MetricsLine], replies: list[Reply], **seconds: float) -> None:
        """Write what is new and tell who watches. The hosts' evaluations belong to the round before their fits."""
        busy = [reply.busy_seconds for reply in replies]
        timing = {
            "seed": self.seed,
            "round": self.server.round,
            "train": max(reply.train_seconds for reply in replies),
            "comm": max(0.0, seconds["exchange"] - max(busy)),
            "server": seconds["server"],
            "eval": max(reply.eval_seconds for reply in replies),
            "log": seconds["log"],
            "total": seconds["total"],
            "host_busy": [round_seconds(b) for b in busy],
            "rss_mb": sum({os.getpid(): resident_mb(), **{reply.process: reply.rss_mb for reply in replies}}.values()),
        }
        self.recorder.write_timing(timing)
        self.driver.warn_of_restarts()
        if lines:
            event = dict(seed=self.seed, round=round, rounds=self.config.rounds, lines=lines, seconds=seconds["total"])
            event["traces"] = [
                dict(seed=self.seed, round=round, client=client, name=name, value=value)
                for (client, name), value in self._traces_told.items()
            ]
            self.driver.on_event(event)


def round_seconds(seconds: float) -> float:
    """Seconds to the microsecond."""
    return round(seconds, 6)
