"""The observers of a run, in the order in which they are called."""

from collections.abc import Callable

from fedbench.results.events import Event
from fedbench.runtime.build import RunParts
from fedbench.runtime.exchange import Setup
from fedbench.runtime.observers.evaluation_events import EvaluationEvents
from fedbench.runtime.observers.fleet_traces import FleetTraces
from fedbench.runtime.observers.keeping import Keeping
from fedbench.runtime.observers.newcomers import Newcomers
from fedbench.runtime.observers.observers import Observers
from fedbench.runtime.observers.privacy_budget import BudgetTraces
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.observers.score_remarks import ScoreRemarks
from fedbench.runtime.observers.timings import Timings
from fedbench.runtime.observers.upload_traces import UploadTraces
from fedbench.runtime.server.sampling import Calendar
from fedbench.runtime.uploads.privacy import privacy_budget


def build_observers(
    parts: RunParts,
    setup: Setup,
    calendar: Calendar,
    keeping: Keeping,
    recorder: Recorder,
    on_event: Callable[[Event], None],
) -> Observers:
    """All observers of a run. The order is that of their remarks, and of traces."""
    config, seed = parts.run.config, parts.seed
    return Observers(
        [
            Newcomers(seed, len(setup.partition.newcomers), config.evaluate, recorder, on_event),
            keeping.models,
            keeping.predictions,
            recorder,
            ScoreRemarks(parts, setup.partition, calendar),
            UploadTraces(),
            BudgetTraces(privacy_budget(config.privacy, parts.method), config.rounds),
            FleetTraces(config, seed),
            keeping.outcomes,
            Timings(seed, recorder),
            EvaluationEvents(on_event, recorder.task, config.log_clients),
        ]
    )
