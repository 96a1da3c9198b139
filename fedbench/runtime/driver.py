"""The driver, which makes the exchanges of a run. It is independent of methods, and of what is recorded."""

from collections.abc import Callable, Sequence
from typing import Any

from fedbench.data.prepared import PreparedDataset
from fedbench.methods.base import ExtraPass
from fedbench.methods.server import ServerState
from fedbench.results.events import Event, ModelsBuilt, Remark
from fedbench.results.remarks import Doubt, as_doubts
from fedbench.runtime.build import RunParts, build_parts
from fedbench.runtime.evaluation.scores import RunScores
from fedbench.runtime.exchange import ClientTask, Order, Relocation, Reply, Report, Setup
from fedbench.runtime.hosts import Hosts, torch_threads
from fedbench.runtime.machine.allocator import release_freed_memory
from fedbench.runtime.observers.build import build_observers
from fedbench.runtime.observers.keeping import Keeping
from fedbench.runtime.observers.observer import EndedExchange
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.observers.remark_log import RemarkLog
from fedbench.runtime.observers.timings import Stopwatch
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.server.failures import common_failure, refuse_failing_half
from fedbench.runtime.server.fleet import RoundFleet
from fedbench.runtime.server.placement import ClientCosts, Homes
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from fedbench.runtime.server.sampling import Calendar
from fedbench.runtime.server.server_half import ServerHalf
from fedbench.runtime.states import trees
from fedbench.runtime.states.checkpoint import Checkpoints
from fedbench.runtime.states.store import Versions
from fedbench.runtime.uploads.chain import UploadChain
from fedbench.runtime.uploads.privacy import refuse_answers
from fedbench.runtime.warnings import first_warnings, warn_of_outputs


class Driver:
    """Runs one configuration with one seed.

    on_event: gets what happens, above all every evaluated round; warnings: given before round 1. pause: the round after
    whose evaluation it leaves a checkpoint and stops, if it is not the last.
    """

    def __init__(
        self,
        parts: RunParts,
        setup: Setup,
        hosts: Hosts,
        recorder: Recorder,
        on_event: Callable[[Event], None],
        warnings: Sequence[str],
        pause: int | None = None,
    ) -> None:
        self.parts, self.config, self.seed = parts, parts.run.config, parts.seed
        self.context, self.method = parts.context, parts.method
        self.setup, self.hosts, self.recorder, self.on_event = setup, hosts, recorder, on_event
        self.initial = parts.learner.initial()
        self.server_half = ServerHalf(self.method, self.initial)
        self.uploads = UploadChain(parts)
        self.calendar = Calendar(self.config, self.seed, self.context.clients, self.method, self.uploads.malicious)
        self.costs, self.homes = ClientCosts(self.context.sizes), Homes(hosts.count)
        self.record, self.uses_rounds = RoundRecord(), False
        self.scores = RunScores(self.method, self.calendar, recorder)
        self.keeping = Keeping(parts, setup.partition, self.server_half, self.calendar, recorder.folder)
        self.observers = build_observers(parts, setup, self.calendar, self.keeping, recorder, on_event)
        self.remarks = RemarkLog(recorder, on_event)
        ours = [*self.observers.first_remarks(), *self.uploads.first_remarks()]
        self.warnings = [*warnings, *first_warnings(parts), *ours]
        self.last = min(pause or self.config.rounds, self.config.rounds)
        keys = self.config.checkpoint
        self.checkpoints = Checkpoints(recorder.folder / "checkpoint", keys.every, self.config.rounds, keys.keep)

    @classmethod
    def of(
        cls,
        run: ResolvedRun,
        hosts: Hosts,
        recorder: Recorder,
        on_event: Callable[[Event], None] = lambda event: None,
        pause: int | None = None,
    ) -> "Driver":
        """The driver of a run of one seed."""
        config, dataset, seed = run.config, run.dataset, run.seed
        dealt = run.partition()
        release_freed_memory()
        known = PreparedDataset.of(dataset) if dataset.folder else None
        parts = build_parts(run, dealt, seed)
        largest = max(trees.nbytes(model.learner.initial()) for model in parts.models)
        states, messages = parts.context.clients * largest, 2 * parts.context.participants_per_round * largest
        setup = Setup(config, seed, dealt, known, state_bytes=states, message_bytes=messages)
        lines = [*dataset.remarks, *dealt.warnings, *warn_of_outputs(parts, dealt)]
        return cls(parts, setup, hosts, recorder, on_event, lines, pause)

    @property
    def server(self) -> ServerState:
        """The state of the server half."""
        return self.server_half.state

    def run(self, kept: dict[str, Any] | None = None) -> bool:
        """Make all exchanges, or those after a checkpoint; returns whether the run is complete.

        kept: the driver's part of the checkpoint.
        """
        with torch_threads(self.config.train.threads):
            self.begin(kept)
            for number in range(self.record.number, self.last + 1):
                self.exchange(number)
            self.end()
        return self.last == self.config.rounds

    def begin(self, kept: dict[str, Any] | None = None) -> None:
        """Set up hosts and server."""
        self.hosts.begin(self.setup, self.parts)
        self.on_event(ModelsBuilt({model.model: model.sizes for model in self.parts.models}))
        self._pass_on_remarks()
        if kept:
            self.remarks.give_first(self.warnings, kept["first_warnings"], kept["rounds"] < self.config.rounds)
            self._restore(kept)
        else:
            self.remarks.give_first(self.warnings)
        self.server.empty_like = self.hosts.empty_like
        if not kept:
            self._extra_pass(0)
        self.observers.on_begin(self)

    def end(self) -> None:
        """Have observers do what comes last, if the run is complete, and release what only this run needed."""
        if self.last == self.config.rounds:
            self.remarks.give(self.observers.on_end(self))
        self.hosts.end()
        self._pass_on_remarks()

    def exchange(self, number: int) -> None:
        """Send one message to every host and back: evaluates a model and trains the next one from it."""
        watch, is_last = Stopwatch(), number == self.config.rounds
        # 1. choose who trains and who is evaluated
        trainers = self._trainers(number)
        evaluated = self.calendar.evaluated if self.calendar.is_evaluated(number) else []
        # 2. prepare the messages with the model
        global_model = self.server_half.global_message() if evaluated else None
        tasks = self._tasks(number, trainers, evaluated, global_model is not None)
        dealt, moves = self.homes.deal(tasks, self.costs.of, self.costs.in_seconds)
        watch.lap("server")
        # 3. the hosts work
        replies, reports = self.ask(number, dealt, moves, global_model=global_model)
        watch.lap("exchange")
        # 4. complete the record of the round that made the model
        failing = self._record(number, trainers, replies, reports)
        watch.lap("log")
        # 5. the server half makes the next model
        if not is_last:
            self._aggregate(trainers, tasks, replies, reports)
            self.record.failing = failing
            self._extra_pass(number + 1)
        watch.lap("server")
        # 6. keep what the run continues from
        self.observers.on_aggregation(number, reports)
        if not is_last:
            self._checkpoint()
        watch.lap("log")
        self._pass_on_remarks()
        self.observers.on_exchange(EndedExchange(number, replies, watch.stop(replies)))

    def ask(
        self, number: int, dealt: Sequence[list[ClientTask]], moves: Sequence[Relocation] = (), **more: Any
    ) -> tuple[list[Reply], list[Report]]:
        """Send every host its tasks: the replies, and all their reports in the order of clients."""
        orders = [
            Order(number, tasks, moved_away=self.homes.take_moved(host), **more) for host, tasks in enumerate(dealt)
        ]
        replies = self.hosts.exchange(orders, moves)
        self.uses_rounds |= any(reply.uses_rounds for reply in replies)
        reports = (report for reply in replies for report in reply.reports)
        return replies, sorted(reports, key=lambda report: report.client)

    def _trainers(self, number: int) -> Sequence[int]:
        """Who trains in an exchange; sets the round and its participants."""
        is_last = number == self.config.rounds
        self.server.round = number + 1
        self.server.participants = [] if is_last else self.calendar.participants(number + 1)
        return [] if is_last else self.calendar.trainers(self.server.participants)

    def _tasks(
        self, number: int, trainers: Sequence[int], evaluated: Sequence[int], has_global: bool
    ) -> list[ClientTask]:
        fit_counts = self.method.after_fit == "fit"
        seen, drawn = set(evaluated), set(trainers)
        fits = drawn.intersection(self.calendar.evaluated) if fit_counts else set()
        shown = self.calendar.last_fits(fits, number + 1)
        fleet = RoundFleet.of(self.config, self.seed, number + 1, self.server.participants)
        shares = self.uploads.sums.shares([c for c in trainers if c not in fleet.lost], self.hosts.device)
        return [
            ClientTask(
                client,
                self.server_half.call("send", client),
                self.homes.round_saved(client),
                idle_model=client in seen and fit_counts and client not in self.scores.last_fit,
                after_agg=client in seen,
                global_model=client in seen and has_global,
                train=client in drawn,
                after_fit=client in shown,
                share=shares.get(client),
                **self.keeping.of_task(client, number),
                **fleet.of_task(client),
            )
            for client in sorted(seen | drawn)
        ]

    def _record(
        self, number: int, trainers: Sequence[int], replies: Sequence[Reply], reports: Sequence[Report]
    ) -> tuple[str, list[int]]:
        """Show observers the reports and, of an evaluated round, the scores; returns a common cause of failures."""
        self._note_failures([report for report in reports if report.client not in trainers], "was not evaluated")
        self.remarks.give(self.observers.on_reports(number, reports))
        self.remarks.give(line for reply in replies for line in reply.remarks)
        if self.calendar.is_evaluated(number):
            evaluated = self.scores.evaluated(self.record, reports, self.keeping.predictions.pooled)
            self.remarks.give(self.observers.on_evaluation(evaluated))
        if self.record.extra_pass:
            self.scores.forget_idle_models()
        return self._refuse_failures(number, [report for report in reports if report.client in trainers], reports)

    def _aggregate(
        self, trainers: Sequence[int], tasks: Sequence[ClientTask], replies: Sequence[Reply], reports: Sequence[Report]
    ) -> None:
        """Make the next model from the uploads and begin the record of its round."""
        server, totals = self.server, [reply.total for reply in replies]
        for host, reply in enumerate(replies):
            self.homes.learn(server.round, host, reply.reports)
        shown = self.calendar.is_evaluated(server.round)
        training = TrainedRound(server.round, server.participants, trainers, tasks, reports, totals, shown)
        for client, reason in training.failures:
            line = f"seed {self.seed}, round {training.round}: client {client} was left out: {reason}"
            self.remarks.give([Doubt(line)])
        self.record = self.record.after(training, self.calendar.is_evaluated(self.record.number))
        self.scores.take_fits(training)
        for report in reports:
            self.costs.learn(report)
        self.record.traces |= self.observers.on_training(training, self.record)
        if training.uploads:
            server.traced = shown
            self.server_half.call("aggregate", self.uploads.at_server(training.uploads, training.delivery))
            self.record.traces |= server.traces if server.traced else {}
            server.traces = {}
            self.remarks.give(self.server_half.global_model.remarks())
        self.remarks.give(as_doubts(server.remarks()))

    def _extra_pass(self, number: int) -> None:
        """Make an exchange without training over all clients, if the method asks for one; its bytes count."""
        if not isinstance(self.method, ExtraPass):
            return
        self.server.round = number
        question = self.server_half.call("question")
        if question is None:
            return
        refuse_answers(self.config)
        tasks = [ClientTask(client, question, self.homes.round_saved(client)) for client in range(self.context.clients)]
        dealt, _ = self.homes.deal(tasks, self.costs.of, movable=False)
        _, reports = self.ask(number, dealt, extra=True)
        self._note_failures(reports, "did not answer")
        common_failure(self.seed, number, reports, self.record.failing, self.context.clients)
        answers = {report.client: report.answer for report in reports if report.answer is not None}
        self.record.bytes_down += question.nbytes * len(tasks)
        self.record.bytes_up += sum(answer.nbytes for answer in answers.values())
        if answers:
            self.server_half.call("conclude", answers)
            self.record.extra_pass = True
        self.remarks.give(as_doubts(self.server.remarks()))

    def _note_failures(self, reports: Sequence[Report], what: str) -> None:
        """Note failures of clients that were not to be trained."""
        for report in reports:
            if report.failure is not None:
                where = f"seed {self.seed}, round {self.record.number}"
                self.remarks.give([Doubt(f"{where}: client {report.client} {what}: {report.failure}")])
                self.record.failed.append((report.client, report.failure))

    def _refuse_failures(
        self, number: int, trained: Sequence[Report], reports: Sequence[Report]
    ) -> tuple[str, list[int]]:
        """End a run in which all fail alike, or half in round 1; returns what is remembered of the failures."""
        round, before = number + bool(trained), self.record.failing
        failing = common_failure(self.seed, round, trained or reports, before, self.context.clients)
        if number == 0:
            refuse_failing_half(self.seed, trained)
        return failing

    def _checkpoint(self) -> None:
        """Write a checkpoint if one is due; if the disk is full, the run continues without it."""
        round = self.record.number
        if self.checkpoints.is_due(round) or round > self.last:
            try:
                self.checkpoints.keep(round, self._content, self._versions(), self.hosts.snapshot)
            except OSError as error:
                self.remarks.give([f"{error}; the run continues, and the previous checkpoint stays"])

    def _content(self) -> dict[str, Any]:
        self.recorder.keep()
        return {
            "server": self.server.state(),
            "record": vars(self.record),
            "last_fit": self.scores.last_fit,
            "validation": self.scores.validation.last_fit,
            "kept": {client: (home.kept, home.nbytes) for client, home in self.homes.of.items()},
            "recorder": self.recorder.state(),
            "rounds": self.config.rounds,
            "uses_rounds": self.uses_rounds or self.context.uses_rounds,
            "first_warnings": self.remarks.first,
            "writes_global_model": self.server_half.global_model.written,
        }

    def _versions(self) -> list[Versions]:
        return [self.homes.versions(host) for host in range(self.hosts.count)]

    def _restore(self, kept: dict[str, Any]) -> None:
        self.server_half.restore(kept["server"], kept["writes_global_model"])
        self.record, self.uses_rounds = RoundRecord(**kept["record"]), kept["uses_rounds"]
        self.scores.last_fit, self.scores.validation.last_fit = kept["last_fit"], kept["validation"]
        if kept["rounds"] < self.config.rounds:
            self.scores.forget_early_end()
            self.observers.on_longer_run(self.record.number)
        self.homes.settle(kept["kept"], self.costs)
        self.hosts.restore(self._versions(), self.checkpoints.shards(kept))

    def _pass_on_remarks(self) -> None:
        """Tell watchers what hosts have said; it is not kept."""
        for text in self.hosts.remarks:
            self.on_event(Remark(text))
        self.hosts.remarks.clear()
