"""A host: one learner and its clients, in a Ray actor or in the calling process."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from fedbench import processor
from fedbench.errors import ConfigError, RunError, first_line, place_of_code
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.contract import call_hook, check_fit, check_shapes, guard_inputs
from fedbench.methods.messages import Message, weights_of
from fedbench.module import seeds
from fedbench.module.seeds import Key
from fedbench.module.weights import Weights
from fedbench.runtime.build import RunParts, build_parts
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.clients.finite import loss_that_diverged, rate_name, what_diverged, what_is_not_finite
from fedbench.runtime.clients.turns import Turns
from fedbench.runtime.evaluation.scoring import Evaluated, Scorer
from fedbench.runtime.exchange import POOLED, ClientTask, Order, Reply, Report, Setup
from fedbench.runtime.machine.allocator import resident_mb
from fedbench.runtime.machine.determinism import deterministic_kernels
from fedbench.runtime.machine.gpu import GpuFullError, limit_memory, peak_mb, reporting_full_gpu
from fedbench.runtime.messages.transfer import Sent, on_cpu, on_device
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states import trees
from fedbench.runtime.states.store import ClientStore, StateLostError, open_store
from fedbench.runtime.uploads.chain import UploadChain
from fedbench.runtime.uploads.outbox import Outbox

WATCH_EVERY = 10
"""Orders after which hooks are checked exactly again, see `_guard_inputs`."""


class Model:
    """One of the run's models on a host: its learner, its method, its start, and the turns of clients that have it."""

    def __init__(self, parts: RunParts) -> None:
        self.learner, self.method, self.initial = parts.learner, parts.method, parts.learner.initial()
        self.turns = Turns(self.learner.row_engine) if self.learner.row_engine else None


class Host:
    """Executes orders, client by client, on the learner of each client's model.

    ship: called with every upload, and with their total: it may put what stands for a tensor in its place. debug: raise
    client failures instead of reporting them.
    """

    def __init__(
        self,
        parts: RunParts,
        data: Any,
        store: ClientStore,
        ship: Callable[[Message], None] = lambda message: None,
        debug: bool = False,
    ) -> None:
        self.config, self.seed, self.context = parts.run.config, parts.seed, parts.context
        self.data, self.store, self.device = data, store, parts.learner.device
        known = {model_parts.model: Model(model_parts) for model_parts in parts.models}
        self.models = [known[model_parts.model] for model_parts in parts.models]
        self._clock = time.perf_counter
        self._ship, self._debug = ship, debug
        self._watched: set[str] = set()
        self._sent: Sent = {}
        self.uploads, self.scorer = UploadChain(parts), Scorer(self.config, data, self.context.clients)

    def model(self, client: int) -> "Model":
        """The model of a client."""
        return self.models[client % len(self.models)]

    @classmethod
    def of(cls, setup: Setup, run: ResolvedRun, parts: RunParts | None = None, **more: Any) -> "Host":
        """The host of a run. parts: those of the driver, if it is in this process and on the same device."""
        if setup.config.train.engine == "graph" and setup.device == "cpu":
            raise ConfigError("train.engine = graph: the hosts have no GPU; set --gpus-per-host, or leave it out")
        if setup.config.train.engine == "compiled" and setup.device == "cpu" and not processor.compiler():
            raise ConfigError(
                "train.engine = compiled: no C++ compiler is on this machine: install g++, or leave it out"
            )
        limit_memory(torch.device(setup.device), setup.gpu_share)
        with reporting_full_gpu():
            parts = parts or build_parts(run, setup.partition, setup.seed, setup.device)
            learner = parts.learner
            data = ClientData(setup.config, run.dataset, setup.partition, learner.device, learner.dtype)
        return cls(parts, data, open_store(setup.states), **more)

    def client(self, task: ClientTask, round: int) -> Client:
        """The client with the model of a round. Raises StateLostError."""
        number, state, model = task.client, self._state(task), self.model(task.client)
        key = self._key(number, round)
        train = self._split(number, "train", key)
        if task.joining:
            train = self._take_images(train, number, task.joining.images)
        client = Client(
            id=number,
            samples=len(train),
            train=train,
            public=self.data.public(key),
            learner=model.learner,
            initial=model.initial,
            seed=self.seed,
            round=round,
            state=state or model.method.State(),
            message=on_device(task.message, self.device, self._sent),
            epochs=task.joining.epochs if task.joining else None,
            work=task.work,
        )
        if state is None:
            call_hook(model.method, "begin", client)
        return self._set_round(client, round)

    def _state(self, task: ClientTask) -> PrivateState | None:
        """The private state on the host's device; None before the client's first training."""
        state = trees.move_vectors(self.store.load(task.client, task.kept), self.device)
        return self.model(task.client).method.State(**state) if state else None

    def held_out(self, task: ClientTask, round: int) -> dict[str, Any]:
        """The samples of a client that its method never sees, by part; without empty parts, of a newcomer the tests."""
        parts, key = ("test",) if task.joining else ("val", "test"), self._key(task.client, round)
        splits = {part: self._split(task.client, part, key) for part in parts}
        return {part: split for part, split in splits.items() if len(split)}

    def _split(self, number: int, part: str, key: Key) -> Any:
        if number != POOLED:
            return self.data.split([number], part, key)
        return self.data.split(range(self.context.clients) if part == "train" else [], part, key)

    def _take_images(self, train: Any, number: int, images: int) -> Any:
        """So many training images of a newcomer, in stored order; more of them include the fewer ones. 0: all."""
        order = torch.randperm(len(train), generator=seeds.generator(self.seed, number, "few"))
        return train.part(order[:images].sort().values) if images else train

    def _key(self, number: int, round: int) -> Key:
        return (self.seed, number, round) if number != POOLED else (self.seed, round, "pool")

    def _set_round(self, client: Client, round: int, rate_of: int | None = None) -> Client:
        """Set a client's round: its random streams, and the learning rates of this or another round."""
        client.round = round
        client.decay = self.config.train.decay(round if rate_of is None else rate_of)
        for split in (client.train, client.public):
            if split is not None:
                split.key = self._key(client.id, round)
        return client

    def work(self, order: Order) -> Reply:
        """Do the tasks of an order one after another. A client that fails is reported and changes nothing."""
        begun, cpu = time.perf_counter(), time.process_time()
        if order.number % WATCH_EVERY == 0:
            self._watched.clear()
        self._sent.clear()
        for client in order.moved_away:
            self.store.drop(client)
        self._outbox = Outbox(self._ship, self.device)
        works = [partial(self._try_task, *both, order) for both in zip_longest(order.tasks, order.tasks[1:])]
        with reporting_full_gpu(), deterministic_kernels(self.device), seeds.preserved_streams():
            reports = self._do_all(works, [task.client for task in order.tasks])
            total = self._outbox.close()
        busy, cpu = time.perf_counter() - begun, time.process_time() - cpu
        train, evaluate = (sum(getattr(r, f"{part}_seconds") for r in reports) for part in ("train", "eval"))
        remarks = [line for model in self.models if model.turns for line in model.turns.engine.remarks]
        remarks += [line for model in self.models for line in model.learner.remarks()]
        uses_rounds = any(model.method.context.uses_rounds or model.learner.engine.uses_rounds for model in self.models)
        spent = (train, evaluate, busy, cpu, os.getpid(), resident_mb())
        return Reply(reports, *spent, remarks, total, uses_rounds, peak_mb(self.device))

    def _do_all(self, works: Sequence[Callable[[], Report]], clients: Sequence[int]) -> list[Report]:
        """The reports of pieces of work. Clients that share steps do so with those that have the same model."""
        indices: dict[Turns, list[int]] = defaultdict(list)
        for index, client in enumerate(clients):
            if turns := self.model(client).turns:
                indices[turns].append(index)
        if not indices:
            return [work() for work in works]
        reports: dict[int, Report] = {}
        for turns, tasks in indices.items():
            self._clock = turns.clock
            done = turns.run([works[index] for index in tasks], [clients[index] for index in tasks])
            reports.update(zip(tasks, done, strict=True))
        return [reports[index] for index in range(len(works))]

    def _try_task(self, task: ClientTask, following: ClientTask | None, order: Order) -> Report:
        """Do a task, while the state that the following one needs is fetched; reports what goes wrong."""
        if following:
            self.store.fetch(following.client, following.kept)
        report, client = Report(task.client), None
        try:
            client = self.client(task, order.number)
            if order.extra:
                self._answer(client, report)
            elif task.joining:
                self._join(task, client, report)
            else:
                self._do_task(client, task, order.global_model, report)
        except RunError as error:
            raise RunError.of(error) from error
        except (ConfigError, StateLostError):
            raise
        except (Exception, SystemExit) as error:  # a model that calls sys.exit must not end the run
            if self._debug and isinstance(error, Exception):
                raise
            if full := GpuFullError.behind(error, f"client {task.client}: "):  # not the client's fault
                raise full from error
            # A method's own arithmetic may refuse what a diverged fit has left.
            diverged = loss_that_diverged(client.learner, client.samples) if client and not order.extra else None
            if not self._note_divergence(report, diverged):
                failed = RunError.of(error)
                report.failure, report.trace = str(failed), failed.trace
                report.cause = f"{type(error).__name__} {failed.place}"
            report.upload, report.kept, report.trained = None, None, False
            for points in (report.scores, report.models, report.predictions, report.outcomes):
                points.pop("after_fit", None)  # its fit does not count
        return report

    def _answer(self, client: Client, report: Report) -> None:
        # A client that trains for its answer uses the rates of the next round.
        client = self._set_round(client, client.round, rate_of=client.round + 1)
        with self._guard_inputs("answer", client):
            answer = call_hook(self.model(client.id).method, "answer", client)
        if not self._note_divergence(report, what_is_not_finite(answer, "answer")):
            report.answer = on_cpu(answer)

    def _join(self, task: ClientTask, client: Client, report: Report) -> None:
        """Evaluate a newcomer after its local training, which is that of the round after the last."""
        received = self._weights_from("receive", client)
        if client.epochs:
            self._set_round(client, client.round + 1)
        client.learner.ledger.clear()
        method = self.model(client.id).method
        with self._guard_inputs("join", client, received=received):
            model = call_hook(method, "join", client, received)
        check_shapes(model, client.initial, method, "join")
        if isinstance(model, Weights) and not model.is_finite():
            report.failure = f"its model holds values that are not finite: lower {rate_name(client.learner)}"
            return
        self._score(task, client, "new_clients", model, report)

    def _do_task(self, client: Client, task: ClientTask, global_model: Message | None, report: Report) -> None:
        received = personal = None
        client.learner.ledger.clear()  # the noise of private steps is drawn by their number
        with self._measure_seconds(report, "train_seconds" if task.train else "eval_seconds"):
            if task.train or task.after_agg:
                received = self._weights_from("receive", client)
        with self._measure_seconds(report, "eval_seconds"):
            if received is not None and task.after_agg:
                personal = self._evaluate_personal(task, client, "after_agg", received, report)
            if task.global_model and global_model is not None:
                whole = weights_of(on_device(global_model, self.device, self._sent))
                if "global" not in task.keep and isinstance(personal, Weights) and personal.is_same(whole):
                    self.scorer.reuse("after_agg", "global", task, report)
                else:
                    self._score(task, client, "global", whole, report)
            if task.idle_model:
                delivered, model = client.round, self._weights_from("idle_model", client)
                self._set_round(client, 0)  # its draws do not depend on when it is asked
                self._evaluate_personal(task, client, "idle_model", model, report)
                self._set_round(client, delivered)
        if received is not None and task.train:
            self._train(task, self._set_round(client, client.round + 1), received, report)

    def _train(self, task: ClientTask, client: Client, received: Weights, report: Report) -> None:
        learner, method = client.learner, self.model(client.id).method
        with self._measure_seconds(report, "train_seconds"):
            client.keeps_optimizers = self.config.train.keep_optimizer
            learner.ledger.clear()
            with self._guard_inputs("train", client, received=received):
                upload = call_hook(method, "train", client, received)
                upload = call_hook(method, "outgoing", client, received, upload)
            check_fit(upload, client, method)
            client.keeps_optimizers = False
            self.uploads.at_client(upload, client)
        if self._note_divergence(report, what_diverged(upload, learner, client.samples)):
            return
        ledger = learner.ledger
        report.loss, report.steps, report.logged = ledger.loss, ledger.steps, dict(ledger.logged)
        if task.after_fit:
            with self._measure_seconds(report, "eval_seconds"):
                assert upload.trained is not None
                self._evaluate_personal(task, client, "after_fit", upload.trained, report)
        with self._measure_seconds(report, "train_seconds"):
            if line := trees.refusal(vars(client.state), "client.state"):
                raise RunError(line, place_of_code(type(client.state)))
            # Last, so that an earlier failure changes nothing.
            if task.kept or not client.state.is_empty:
                report.kept = self._save_state(client)
            report.trained = True
            if task.is_lost:
                return
            upload.trained, report.upload = None, upload
            self._outbox.put(upload, client, task.share)

    def _save_state(self, client: Client) -> int:
        """Save the private state; returns its bytes.

        Raises ConfigError, which ends the run, if there is no room.
        """
        try:
            return self.store.save(client.id, client.round, vars(client.state))
        except OSError as error:
            line = f"the private state of client {client.id} cannot be kept: {first_line(error)}"
            remedy = "keep others from deleting files there" if self.store.was_deleted() else "make room"
            raise ConfigError(f"{line}; {remedy} or set resources.scratch, and repeat the command") from error

    @contextmanager
    def _measure_seconds(self, report: Report, name: str) -> Iterator[None]:
        """Adds the seconds of a block that succeeds to a report."""
        begun = self._clock()
        yield
        setattr(report, name, getattr(report, name) + self._clock() - begun)

    def _guard_inputs(self, hook: str, client: Client, **given: Weights) -> AbstractContextManager[None]:
        """Checks that a hook changes nothing, exactly for its first call in ten orders: copies of models cost time."""
        exact = hook not in self._watched
        self._watched.add(hook)
        return guard_inputs(self.model(client.id).method, hook, client, exact, **given)

    def _weights_from(self, hook: str, client: Client) -> Weights:
        """The weights from a hook, which must change nothing."""
        method = self.model(client.id).method
        with self._guard_inputs(hook, client):
            weights: Weights = call_hook(method, hook, client)
        return check_shapes(weights, client.initial, method, hook)

    def _evaluate_personal(
        self, task: ClientTask, client: Client, point: str, model: Weights, report: Report
    ) -> Weights | Predictor | None:
        """Evaluate the method's version of a model at a point; before any training, at that of a fit."""
        message, method = client.message, self.model(client.id).method
        if point != "after_agg":
            client.message = Message()
        with self._guard_inputs("personal", client, model=model):
            result = call_hook(method, "personal", client, model, point if point == "after_agg" else "after_fit")
            personal: Weights | Predictor | None = check_shapes(result, client.initial, method, "personal")
            self._score(task, client, point, personal, report)
        client.message = message
        return personal

    def _note_divergence(self, report: Report, reason: str | None) -> bool:
        """Whether there is a reason to discard a client's result; notes it in the report."""
        if reason:
            report.failure, report.cause = reason, "not finite"
        return bool(reason)

    def _score(
        self, task: ClientTask, client: Client, point: str, model: Weights | Predictor | None, report: Report
    ) -> None:
        """Evaluate a model on the client's data, if the point has one."""
        if model is not None:
            method, held = self.model(client.id).method, self.held_out(task, client.round)
            self.scorer.score(task, Evaluated(point, model, client.learner, method, held), report)
