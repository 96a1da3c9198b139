"""Has clients join after the last round, and records their test scores."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from fedbench.config.schema import EvaluateConfig
from fedbench.config.words import plural
from fedbench.results.events import Event, NewcomersJoin
from fedbench.results.remarks import Doubt
from fedbench.runtime.exchange import ClientTask, Joining, Report
from fedbench.runtime.observers.observer import Observer, RunInProgress
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.server.sampling import evaluated_clients


class Newcomers(Observer):
    """Each newcomer joins once for each number of epochs and images. count: of all newcomers."""

    def __init__(
        self, seed: int, count: int, options: EvaluateConfig, recorder: Recorder, on_event: Callable[[Event], None]
    ) -> None:
        self.seed, self.count, self.options, self.recorder, self.on_event = seed, count, options, recorder, on_event

    def on_begin(self, driver: RunInProgress) -> None:
        """Have a server half that has no message for them fail now, not at the end."""
        if self.count:
            driver.server_half.state.round = driver.record.number + 1
            driver.server_half.call("welcome", driver.context.clients)

    def on_end(self, driver: RunInProgress) -> Iterable[str]:
        """Have them join; returns remarks."""
        if not self.count:
            return
        last = driver.config.rounds
        self.on_event(NewcomersJoin(self.seed, last, self.count))
        # As in the messages of the round that would follow.
        driver.server_half.state.participants = driver.calendar.participants(last + 1)
        dealt = self._tasks(driver)
        replies, reports = driver.ask(last, dealt)
        yield from (line for reply in replies for line in reply.remarks)
        tasks = sorted((task for host_tasks in dealt for task in host_tasks), key=lambda task: task.client)
        yield from self._record(tasks, reports)

    def joinings(self) -> list[Joining]:
        """How each of them joins."""
        epochs = sorted({*self.options.new_clients_epochs})
        fewer = [Joining(epochs[-1], images) for images in sorted({*self.options.new_clients_samples})]
        return [*map(Joining, epochs), *fewer]

    def _tasks(self, driver: RunInProgress) -> list[list[ClientTask]]:
        """The tasks of each host."""
        dealt: list[list[ClientTask]] = [[] for _ in range(driver.homes.hosts)]
        for turn, newcomer in enumerate(evaluated_clients(self.seed, self.count, self.options.clients)):
            client = driver.context.clients + newcomer
            message = driver.server_half.call("welcome", client)
            dealt[turn % len(dealt)] += [ClientTask(client, message, joining=joining) for joining in self.joinings()]
        return dealt

    def _record(self, tasks: Sequence[ClientTask], reports: Sequence[Report]) -> Iterator[str]:
        """Record the scores; yields a remark on those that are missing for each reason."""
        failed: dict[str, set[int]] = {}
        for task, report in zip(tasks, reports, strict=True):
            if report.failure is not None:
                failed.setdefault(report.failure, set()).add(task.client)
            elif task.joining and "test" in (scores := report.scores["new_clients"]):
                self.recorder.add_newcomer(self.seed, task.client, task.joining, scores["test"])
        for reason, clients in failed.items():
            who = f"{plural(len(clients), 'newcomer')} (the first: client {min(clients)})"
            yield Doubt(f"seed {self.seed}: scores of {who} are missing: {reason}")
