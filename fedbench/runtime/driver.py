"""The driver, which makes the exchanges of a run. It is independent of methods."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from fedbench.config.words import plural
from fedbench.data.prepared import PreparedDataset
from fedbench.errors import ConfigError, RunError, place_of_code
from fedbench.methods.base import ExtraPass, Method
from fedbench.methods.contract import call_hook, check_server, server_hook, shared_model
from fedbench.methods.messages import Message
from fedbench.results.events import Evaluation, Event, ModelsBuilt, NewcomersJoin, Remark
from fedbench.results.logged import LoggedRow
from fedbench.results.remarks import Doubt, as_doubts
from fedbench.results.schema import COST_KEYS, MetricsLine
from fedbench.runtime import trees
from fedbench.runtime.allocator import release_freed_memory, resident_mb
from fedbench.runtime.attacks import warn_of_attack
from fedbench.runtime.build import RunParts, build_parts
from fedbench.runtime.checkpoint import Checkpoints
from fedbench.runtime.exchange import (
    POOLED,
    ClientTask,
    Joining,
    Order,
    Relocation,
    Reply,
    Report,
    RoundRecord,
    Scores,
    Setup,
)
from fedbench.runtime.failures import refuse_failing_half, refuse_untrained
from fedbench.runtime.fleet import fleet_traces, lost_uploads, work_shares
from fedbench.runtime.global_model import GlobalModel
from fedbench.runtime.hosts import Hosts, torch_threads
from fedbench.runtime.kept_models import KeptModels
from fedbench.runtime.kept_outcomes import KeptOutcomes
from fedbench.runtime.kept_points import KeptPoints
from fedbench.runtime.kept_predictions import KeptPredictions, sends_outputs
from fedbench.runtime.placement import ClientCosts, Homes
from fedbench.runtime.pooled_validation import PooledValidation
from fedbench.runtime.privacy import privacy_budget
from fedbench.runtime.recorder import Recorder
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.sampling import Calendar, evaluated_clients
from fedbench.runtime.store import Versions
from fedbench.runtime.sums import Total
from fedbench.runtime.unscored import Unscored
from fedbench.runtime.uploads.chain import UploadChain
from fedbench.runtime.uploads.step import Delivery
from fedbench.runtime.warnings import first_warnings, warn_of_sample, warn_of_undefined_outputs


class Driver:
    """Runs one configuration with one seed.

    on_event: gets every evaluated round; warnings: given before round 1.
    """

    def __init__(
        self,
        parts: RunParts,
        setup: Setup,
        hosts: Hosts,
        recorder: Recorder,
        on_event: Callable[[Event], None],
        warnings: Sequence[str],
    ) -> None:
        self.parts, self.config, self.seed = parts, parts.run.config, parts.seed
        self.context, self.method = parts.context, parts.method
        self.setup, self.hosts, self.recorder, self.on_event = setup, hosts, recorder, on_event
        self.warnings = [*warnings, *first_warnings(parts)]
        self.initial = parts.learner.initial()
        self.server = self._server_half("start", self.initial)
        self.uploads = UploadChain(parts)
        self.malicious = self.uploads.malicious
        self.calendar = Calendar(self.config, self.seed, self.context.clients, self.method, self.malicious)
        self.warnings += warn_of_sample(len(self.calendar.evaluated), self.context.clients - len(self.malicious))
        self.unscored = Unscored(parts.run, setup.partition, self.seed, self.calendar.evaluated)
        self.warnings += self.unscored.first_lines()
        if self.context.drawn == self.context.clients:
            self.warnings += warn_of_attack(self.config.attack, self.context.clients, len(self.malicious))
        self.budget = privacy_budget(self.config.privacy, self.method)
        if self.budget:
            self.warnings.append(self.budget.line(self.config.rounds))
        self.costs, self.homes = ClientCosts(self.context.sizes), Homes(hosts.count)
        self.record = RoundRecord()
        keeps, last, origin = (
            self.config.save_models or sends_outputs(self.config.save_predictions, recorder.task),
            self.config.rounds,
            self.method.after_fit,
        )
        drawn = lambda round: self.calendar.trainers(self.calendar.participants(round))  # noqa: E731
        self.points = KeptPoints(keeps, last, origin, drawn)
        self.outcomes = KeptOutcomes(
            KeptPoints(True, last, origin, drawn, with_global=True), self.seed, recorder.folder
        )
        self.models = KeptModels(parts, self.points, recorder.folder)
        self.predictions = KeptPredictions(self.config, self.seed, self.points, recorder.folder, recorder.task)
        checkpoints, rounds = self.config.checkpoint, self.config.rounds
        self.checkpoints = Checkpoints(recorder.folder / "checkpoint", checkpoints.every, rounds, checkpoints.keep)
        self.last_fit: dict[int, tuple[int, Scores]] = {}
        """Of every client: the round of its last fit, 0 before the first, and the scores of that model."""
        self.validation = PooledValidation(recorder.task)
        self.curves: list[LoggedRow] = []
        """Scores of clients for loggers that want them, of the round in progress."""
        self.uses_rounds = False
        self.global_model = GlobalModel(self.method)

    @classmethod
    def of(
        cls,
        run: ResolvedRun,
        hosts: Hosts,
        recorder: Recorder,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> "Driver":
        """The driver of a run of one seed."""
        config, dataset, seed = run.config, run.dataset, run.seed
        dealt = run.partition()
        release_freed_memory()
        known = PreparedDataset.of(dataset) if dataset.folder else None
        parts = build_parts(run, dealt, seed)
        largest = max(trees.nbytes(own.learner.initial()) for own in parts.models)
        states, messages = parts.context.clients * largest, 2 * parts.context.drawn * largest
        setup = Setup(config, seed, dealt, known, state_bytes=states, message_bytes=messages)
        return cls(parts, setup, hosts, recorder, on_event, [*dataset.remarks, *dealt.warnings])

    def run(self, kept: dict[str, Any] | None = None) -> None:
        """Make all exchanges, or those after a checkpoint. kept: the driver's part of the checkpoint."""
        with torch_threads(self.config.train.threads):
            self.begin(kept)
            for number in range(self.record.number, self.config.rounds + 1):
                self.exchange(number)
            self.join_newcomers()
            self.end()

    def begin(self, kept: dict[str, Any] | None = None) -> None:
        """Set up hosts and server."""
        self.hosts.begin(self.setup, self.parts)
        self.on_event(ModelsBuilt({own.model: own.sizes for own in self.parts.models}))
        self._tell_remarks()
        self._give_first_warnings(kept)
        if kept:
            self._restore(kept)
        self.server.empty_like = self.hosts.empty_like
        if not kept:
            self._extra_pass(0)
        if self.setup.partition.newcomers:  # a server half that has no message for them fails now, not at the end
            self.server.round = self.record.number + 1
            self._server_half("welcome", self.server, self.context.clients)

    def end(self) -> None:
        """Warn of rounds in which nothing was trained, and release what only this run needed."""
        if self.record.idle:
            share = f"{self.record.idle} of {self.config.rounds} rounds"
            line = f"seed {self.seed}: nothing was trained in {share}: no client ended a fit with a gradient step"
            self.warn(Doubt(line))
        self.hosts.end()
        self._tell_remarks()

    def refuse_untrained(self) -> None:
        """Raises RunError if most clients that were to train have never completed a fit: the scores are no result."""
        refuse_untrained(self.seed, self.record.fits)

    def exchange(self, number: int) -> None:
        """Send one message to every host and back: evaluates a model and trains the next one from it."""
        begun, cpu = time.perf_counter(), time.process_time()
        last = number == self.config.rounds
        # 1. choose who trains and who is evaluated
        self.server.round = number + 1
        self.server.participants = [] if last else self.calendar.participants(number + 1)
        trainers = [] if last else self.calendar.trainers(self.server.participants)
        evaluate = self.calendar.evaluated if self.calendar.is_evaluated(number) else []
        # 2. prepare the messages with the model
        global_model = self._global_model() if evaluate else None
        tasks = self._tasks(number, trainers, evaluate, global_model is not None)
        dealt, moves = self.homes.deal(tasks, self.costs.of, self.costs.in_seconds)
        sent = time.perf_counter()
        # 3. the hosts work
        replies, reports = self._ask_hosts(number, dealt, moves, global_model=global_model)
        received = time.perf_counter()
        # 4. complete the record of the round that made the model
        trained = [report for report in reports if report.client in trainers]
        self._note_failed([report for report in reports if report.client not in trainers], "was not evaluated")
        self._keep_models(number, reports)
        self.warn(*(line for reply in replies for line in reply.remarks))
        lines = self._record(reports) if evaluate else []
        self.recorder.write_lines(lines)  # before the checkpoint, which counts them
        failing = self._failing(trained or reports, number + bool(trained))
        if number == 0:
            refuse_failing_half(self.seed, trained)
        if self.record.extra_pass and type(self.method).idle_model is not Method.idle_model:
            self.last_fit = {}
        told = self.record.traces
        logged = time.perf_counter()
        # 5. the server half makes the next model
        if not last:
            for host, reply in enumerate(replies):
                self.homes.learn(number + 1, host, reply.reports)
            self._aggregate(trainers, reports, tasks, [reply.total for reply in replies])
            self.record.failing = failing
            self._extra_pass(number + 1)
        aggregated = time.perf_counter()
        self.outcomes.take(number, reports)  # a run whose server half fails in round 1 leaves nothing
        if not last:
            self._checkpoint()
        ended = time.perf_counter()
        seconds = dict(
            server=sent - begun + aggregated - logged,
            exchange=received - sent,
            log=logged - received + ended - aggregated,
            total=ended - begun,
            cpu=time.process_time() - cpu + sum(r.cpu_seconds for r in replies if r.process != os.getpid()),
        )
        self._finish(number, lines, told, replies, seconds)

    def _ask_hosts(
        self, number: int, dealt: Sequence[list[ClientTask]], moves: Sequence[Relocation] = (), **more: Any
    ) -> tuple[list[Reply], list[Report]]:
        """Send every host its tasks: the replies, and all their reports in the order of clients."""
        orders = [Order(number, own, moved_away=self.homes.take_moved(host), **more) for host, own in enumerate(dealt)]
        replies = self.hosts.exchange(orders, moves)
        self.uses_rounds |= any(reply.uses_rounds for reply in replies)
        reports = (report for reply in replies for report in reply.reports)
        return replies, sorted(reports, key=lambda report: report.client)

    def join_newcomers(self) -> None:
        """Have every newcomer join, once for each number of epochs and images, and record its test scores."""
        later, asked, last = len(self.setup.partition.newcomers), self.config.evaluate, self.config.rounds
        if not later:
            return
        joinings = [Joining(epochs) for epochs in sorted({*asked.new_clients_epochs})]
        joinings += [Joining(joinings[-1].epochs, images) for images in sorted({*asked.new_clients_samples})]
        self.on_event(NewcomersJoin(self.seed, last, later))
        # As in the messages of the round that would follow.
        self.server.participants = self.calendar.participants(last + 1)
        dealt: list[list[ClientTask]] = [[] for _ in range(self.hosts.count)]
        for turn, place in enumerate(evaluated_clients(self.seed, later, asked.clients)):
            client = self.context.clients + place
            message = self._server_half("welcome", self.server, client)
            dealt[turn % len(dealt)] += [ClientTask(client, message, joining=joining) for joining in joinings]
        replies, reports = self._ask_hosts(last, dealt)
        self.warn(*(line for reply in replies for line in reply.remarks))
        tasks = sorted((task for own in dealt for task in own), key=lambda task: task.client)
        self._record_newcomers(tasks, reports)

    def _record_newcomers(self, tasks: Sequence[ClientTask], reports: Sequence[Report]) -> None:
        failed: dict[str, set[int]] = {}
        for task, report in zip(tasks, reports, strict=True):
            if report.failure is not None:
                failed.setdefault(report.failure, set()).add(task.client)
            elif task.joining and "test" in (scores := report.scores["new_clients"]):
                self.recorder.add_newcomer(self.seed, task.client, task.joining, scores["test"])
        for reason, clients in failed.items():
            who = f"{plural(len(clients), 'newcomer')} (the first: client {min(clients)})"
            self.warn(Doubt(f"seed {self.seed}: scores of {who} are missing: {reason}"))

    def _tasks(
        self, number: int, trainers: Sequence[int], evaluate: Sequence[int], has_global: bool
    ) -> list[ClientTask]:
        fit_counts = self.method.after_fit == "fit"
        seen, drawn, wanted = set(evaluate), set(trainers), set(self.calendar.evaluated)
        shown = (
            self.calendar.last_fits(drawn.intersection(self.calendar.evaluated), number + 1) if fit_counts else set()
        )
        fleet = self.seed, number + 1, self.server.participants
        lost = lost_uploads(*fleet, self.config.dropout)
        work = work_shares(*fleet, self.config.stragglers)
        shares = self.uploads.sums.shares([c for c in trainers if c not in lost], self.hosts.device)
        return [
            ClientTask(
                client,
                self._server_half("send", self.server, client),
                self.homes.round_saved(client),
                idle_model=client in seen and fit_counts and client not in self.last_fit,
                after_agg=client in seen,
                global_model=client in seen and has_global,
                train=client in drawn,
                after_fit=client in shown,
                keep=self.points.models_to_keep(client, number),
                outcomes=self.outcomes.points.models_to_keep(client, number) if client in wanted else (),
                share=shares.get(client),
                work=work.get(client, 1.0),
                is_lost=client in lost,
            )
            for client in sorted(seen | drawn)
        ]

    def _global_model(self) -> Message | None:
        if self.global_model.is_missing:
            return None
        weights = self._server_half("global_model", self.server, self.initial)
        return None if weights is None else Message(**vars(weights))

    def _keep_models(self, number: int, reports: Sequence[Report]) -> None:
        """Keep models and predictions of clients, and in the end the global model, or else what all clients share."""
        self.warn(*self.models.take(number, reports), *self.predictions.take(number, reports))
        if number == self.config.rounds and self.config.save_models:
            whole = part = None
            if not self.global_model.is_missing:
                whole = self._server_half("global_model", self.server, self.initial)
                part = None if whole else self._server_half("shared_part", self.server, self.initial)
            self.warn(*self.models.take_from_server(whole, part))

    def _extra_pass(self, number: int) -> None:
        """Make an exchange without training over all clients, if the method asks for one; its bytes count."""
        if not isinstance(self.method, ExtraPass):
            return
        self.server.round = number
        question = self._server_half("question", self.server)
        if question is None:
            return
        if self.config.privacy.clip is not None:
            name = self.config.method.name
            raise ConfigError(
                f"privacy.clip: {name} asks all clients a question, whose answers have no noise; leave it out"
            )
        tasks = [ClientTask(client, question, self.homes.round_saved(client)) for client in range(self.context.clients)]
        dealt, _ = self.homes.deal(tasks, self.costs.of, movable=False)
        _, reports = self._ask_hosts(number, dealt, extra=True)
        self._note_failed(reports, "did not answer")
        self._failing(reports, number)
        answers = {report.client: report.answer for report in reports if report.answer is not None}
        self.record.bytes_down += question.nbytes * len(tasks)
        self.record.bytes_up += sum(answer.nbytes for answer in answers.values())
        if answers:
            self._server_half("conclude", self.server, answers)
            self.record.extra_pass = True
        self.warn(*as_doubts(self.server.remarks()))

    def _aggregate(
        self, trainers: Sequence[int], reports: Sequence[Report], tasks: Sequence[ClientTask], totals: Sequence[Total]
    ) -> None:
        """Make the next model from the uploads and begin the record of its round."""
        self.record = self._new_record(trainers, reports, tasks)
        for report in reports:
            self._learn_from(report)
        uploads = [report.upload for report in reports if report.upload is not None]
        lost = {task.client for task in tasks if task.is_lost}
        steps = {report.client: report.steps for report in reports if report.steps and report.trained}
        shown = self.calendar.is_evaluated(self.record.number)
        if self.budget and shown:
            self.record.traces |= self.budget.traces(self.record.number, self.record.private_steps)
        self.record.traces |= fleet_traces(self.config, self.seed, steps, lost)
        if uploads:
            self.server.traced = shown
            received = {task.client: task.message for task in tasks}
            shares = {task.client: task.share for task in tasks if task.share is not None}
            delivery = Delivery(self.record.number, received, shares, totals)
            self._server_half("aggregate", self.server, self.uploads.at_server(uploads, delivery))
            self.record.traces.update(self.server.traces if self.server.traced else {})
            self.server.traces = {}
            self.warn(*self.global_model.remarks())
        self.warn(*as_doubts(self.server.remarks()))

    def _new_record(
        self, trainers: Sequence[int], reports: Sequence[Report], tasks: Sequence[ClientTask]
    ) -> RoundRecord:
        """The record of the round that was just trained; warns of clients that failed in it."""
        round, before = self.server.round, self.record
        failed = [(r.client, r.failure) for r in reports if r.failure is not None and r.client in trainers]
        for client, reason in failed:
            self.warn(Doubt(f"seed {self.seed}, round {round}: client {client} was left out: {reason}"))
        uploads = [report.upload for report in reports if report.upload is not None]
        fits = [report for report in reports if report.steps and report.trained]
        losses = [report.loss for report in fits if report.loss is not None]
        made = {report.client: before.private_steps.get(report.client, 0) + report.steps for report in fits}
        before.fits |= {client: reason for client, reason in failed if before.fits.get(client) != ""}
        before.fits |= {report.client: "" for report in reports if report.trained}
        asked = before if round == 1 else RoundRecord()  # bytes of an extra pass before round 1 count as round 1's
        return RoundRecord(
            number=round,
            idle=before.idle + (not fits),
            took_part=list(self.server.participants) if POOLED in trainers else [u.client for u in uploads],
            train_loss=sum(losses) / len(losses) if losses else None,
            steps=sum(report.steps for report in fits),
            bytes_up=asked.bytes_up + sum(upload.nbytes for upload in uploads),
            bytes_down=asked.bytes_down + sum(task.message.nbytes for task in tasks if task.train),
            failed=[*([] if self.calendar.is_evaluated(before.number) else before.failures_with_round()), *failed],
            private_steps=before.private_steps | (made if self.budget else {}),
            fits=before.fits,
        )

    def _learn_from(self, report: Report) -> None:
        """Note what a client's report says of its time, its last fit and its traces."""
        self.costs.learn(report)
        if report.trained:
            # No scores if a later fit was to be shown: should that one fail, this one's are unknown.
            self.last_fit[report.client] = self.record.number, report.scores.get("after_fit", {})
            self.validation.take([report])
        if report.upload is not None:
            logged = {f"logged/{name}": value for name, value in report.logged.items()}
            traces = report.upload.traces | logged
            self.record.traces.update({(report.client, name): value for name, value in traces.items()})

    def _server_half(self, hook: str, *given: Any) -> Any:
        """The result of a server hook. Raises RunError if the hook fails or returns an invalid state."""
        makes = hook in ("aggregate", "conclude")
        before = shared_model(self.server) if makes else {}
        watching = self.global_model.watching(self.server, hook) if makes else nullcontext()
        with server_hook(self.method, hook), watching:
            found = call_hook(self.method, hook, *given)
        if makes:
            check_server(self.server, before, self.method, hook)
            if line := trees.refusal(self.server.state(), "server"):
                raise RunError(line, place_of_code(type(self.server)))
        return found

    def _failing(self, reports: Sequence[Report], round: int) -> tuple[str, list[int]]:
        """The common cause of these failures, and the clients it has hit since a client last completed a fit.

        Raises RunError if it has hit more than one client or the only one: further rounds would not help.
        """
        causes = {report.cause for report in reports}
        cause = causes.pop() if len(causes) == 1 else ""
        if not cause:
            return "", []
        before, failed = self.record.failing
        clients = sorted({report.client for report in reports}.union(failed if before == cause else []))
        if len(clients) >= min(2, self.context.clients) or POOLED in clients:
            who = "every client" if POOLED in clients else f"every client ({len(clients)})"
            line = f"seed {self.seed}, round {round}: {who} fails in the same way: {reports[0].failure}"
            raise RunError(line, trace=reports[0].trace)
        return cause, clients

    def _note_failed(self, reports: Sequence[Report], what: str) -> None:
        """Warn of failures of clients that were not to be trained."""
        for report in reports:
            if report.failure is not None:
                where = f"seed {self.seed}, round {self.record.number}"
                self.warn(Doubt(f"{where}: client {report.client} {what}: {report.failure}"))
                self.record.failed.append((report.client, report.failure))

    def _record(self, reports: Sequence[Report]) -> list[MetricsLine]:
        """The metrics lines of the round that made the model; also records its rows per client."""
        record, took_part = self.record, set(self.record.took_part)
        agg = {r.client: r.scores["after_agg"] for r in reports if "after_agg" in r.scores}
        whole = {r.client: r.scores["global"] for r in reports if "global" in r.scores}
        for report in reports:
            if "idle_model" in report.scores:
                self.last_fit[report.client] = 0, report.scores["idle_model"]
        trained = {
            client: last for client in self.calendar.evaluated if (last := self.last_fit.get(client, (0, {}))[1])
        }
        self.validation.take([report for report in reports if "idle_model" in report.scores])
        fit = {"fit": trained, "after_agg": agg, "global": whole}[self.method.after_fit]
        costs = {name: getattr(record, name) for name in COST_KEYS}
        lines = []
        for point, scores in (("after_fit", fit), ("after_agg", agg), ("global", whole)):
            if scores:
                more: dict[str, Any] = {"costs": costs} if point == "after_fit" else {}
                more["pooled"] = self.predictions.pooled.get(point)
                line = self.recorder.line(self.seed, record.number, point, scores, **more, failed=record.failed)
                source = self.method.after_fit if point == "after_fit" else point
                lines.append(line | self.validation.columns(reports, source, [*scores]))
                self.recorder.add_clients(self.seed, record.number, point, scores, took_part)
                if self.config.log_clients:
                    self.curves += self.recorder.curves(self.seed, record.number, point, scores)
                self.warn(*warn_of_undefined_outputs(self.seed, point, scores, self.recorder.task))
                if record.number == min(self.config.evaluate.every, self.config.rounds):
                    self.warn(*self.unscored.lines(scores))
        self.recorder.add_traces(self.seed, record.number, record.traces)
        return lines

    def _checkpoint(self) -> None:
        """Write a checkpoint if one is due; if the disk is full, the run continues without it."""
        round = self.record.number
        if self.checkpoints.is_due(round):
            try:
                self.checkpoints.keep(round, self._content, self._versions(), self.hosts.snapshot)
            except OSError as error:
                self.warn(f"{error}; the run continues, and the previous checkpoint stays")

    def _content(self) -> dict[str, Any]:
        self.recorder.keep()
        return {
            "server": self.server.state(),
            "record": vars(self.record),
            "last_fit": self.last_fit,
            "validation": self.validation.last_fit,
            "kept": {client: (home.kept, home.nbytes) for client, home in self.homes.of.items()},
            "recorder": self.recorder.state(),
            "rounds": self.config.rounds,
            "uses_rounds": self.uses_rounds or self.context.uses_rounds,
            "first_warnings": self.first_warnings,
            "writes_global_model": self.global_model.written,
        }

    def _versions(self) -> list[Versions]:
        return [self.homes.versions(host) for host in range(self.hosts.count)]

    def _restore(self, kept: dict[str, Any]) -> None:
        self.server = self.method.Server(**kept["server"])
        self.record = RoundRecord(**kept["record"])
        self.last_fit, self.uses_rounds = kept["last_fit"], kept["uses_rounds"]
        self.validation.last_fit = kept["validation"]
        self.global_model.written = kept["writes_global_model"]
        if kept["rounds"] < self.config.rounds:
            self._lengthen()
        self.homes.settle(kept["kept"], self.costs)
        self.hosts.restore(self._versions(), self.checkpoints.shards(kept))

    def _give_first_warnings(self, kept: dict[str, Any] | None) -> None:
        """Give the warnings before round 1, which come first; a longer run may have others."""
        known, count = self.recorder.warnings, kept["first_warnings"] if kept else 0
        longer = kept is not None and kept["rounds"] < self.config.rounds
        self.recorder.warnings = [line for line in known[:count] if line in self.warnings or not longer]
        self.warn(*self.warnings)
        self.first_warnings = len(self.recorder.warnings)
        self.recorder.warnings += known[count:]

    def _lengthen(self) -> None:
        """Forget what a shorter run has evaluated and kept because it was to end sooner."""
        for client, (round, _) in self.last_fit.items():
            if round and not self.calendar.last_fits({client}, round):
                self.last_fit[client] = round, {}
        self.models.forget_after(self.record.number)

    def _finish(
        self,
        number: int,
        lines: list[MetricsLine],
        traces: dict[tuple[int, str], float],
        replies: list[Reply],
        seconds: dict[str, float],
    ) -> None:
        """Write the exchange's timings and report its events."""
        busy = [reply.busy_seconds for reply in replies]
        timing = {
            "seed": self.seed,
            "exchange": number,
            "train": max(reply.train_seconds for reply in replies),
            "comm": max(0.0, seconds["exchange"] - max(busy)),
            "eval": max(reply.eval_seconds for reply in replies),
            **{part: seconds[part] for part in ("server", "log", "total", "cpu")},
            "host_busy": [round(b, 6) for b in busy],
            "rss_mb": sum({os.getpid(): resident_mb(), **{reply.process: reply.rss_mb for reply in replies}}.values()),
            "gpu_mb": sum(reply.gpu_mb for reply in replies),
        }
        self.recorder.write_timing(timing)
        self._tell_remarks()
        if lines:
            rows = [
                dict(seed=self.seed, round=number, client=client, name=name, value=value)
                for (client, name), value in traces.items()
            ] + self.curves
            metric = self.recorder.task.primary
            self.on_event(Evaluation(self.seed, number, metric, lines, rows, seconds["total"]))
            self.curves = []

    def _tell_remarks(self) -> None:
        for text in self.hosts.remarks:
            self.on_event(Remark(text))
        self.hosts.remarks.clear()

    def warn(self, *lines: str) -> None:
        """Give each remark once; doubts are of type Doubt."""
        for text in lines:
            if text not in self.recorder.warnings:
                self.recorder.warnings.append(text)
                self.on_event(Remark(text))
