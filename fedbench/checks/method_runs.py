"""The small runs by which a method is checked, each made once."""

import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbench import methods
from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.recording import RecordingHosts, Stopped, Stopping
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import Resolver, check_run
from fedbench.methods.base import Method
from fedbench.methods.contract import LOST
from fedbench.runtime.drive import drive
from fedbench.runtime.hosts import Hosts, InProcess
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states import checkpoint
from fedbench.user_code import name_of

ROUNDS, CLIENTS = 4, 6
RECORDS = ("metrics.jsonl", "clients.parquet", "traces.parquet")
"""The files whose bits a run promises."""
Record = dict[str, bytes]
Keys = Mapping[str, Any]

SMALL: Keys = {
    "data": "digits",
    "partition": {"name": "dirichlet", "clients": CLIENTS},
    "model": {"name": "mlp", "hidden": 16},
    "train": {"epochs": 1, "lr": 0.1},
    "rounds": ROUNDS,
    "checkpoint": {"every": 0},
    "resources": {"hosts": 0},
}
AWKWARD: Keys = {
    "participation": 0.5,
    "model": {"name": "fedbench.checks.networks:Awkward", "head": "classifier"},
    "train": {"optimizer": "sgd", "keep_optimizer": True, "lr_decay": 0.9},
}
"""BatchNorm, Dropout, momentum kept, and half of the clients in a round."""
ODD: Keys = {
    "data": {"name": "fedbench.checks.samples:odd_images"},
    "partition": {"name": "shards", "clients": 6, "classes": 1},
    "model": {"name": "fedbench.checks.networks:Awkward", "head": "classifier"},
    "train": {"batch_size": 8},
    "rounds": 2,
}
"""Clients with one image, with one class, with a last batch of one."""
TINY: Keys = {
    "data": {"name": "fedbench.checks.samples:few_images"},
    "partition": {"name": "dirichlet", "clients": 3, "alpha": 1.0},
    "model": {"name": "fedbench.checks.networks:Awkward", "head": "classifier"},
    "train": {"optimizer": "sgd", "batch_size": 8},
    "participation": 0.7,
    "rounds": 3,
}
"""As few images as make a round of clients of several sizes."""
KINDS: Mapping[str, Keys] = {"plain": {}, "awkward": AWKWARD, "odd": ODD, "tiny": TINY}
PUBLIC = {"plain": 40, "awkward": 40, "odd": 6, "tiny": 6}
"""Images of the public set of methods that need one."""
INSTEAD: tuple[Keys, ...] = ({}, {"keep_optimizer": False}, {"optimizer": "sgd"})
"""What a method may refuse of the training, and what it takes instead: the first that it accepts."""
GIVEN_KINDS: Mapping[str, Keys] = {
    "plain": {},
    "awkward": {"participation": 0.5, "train": {"keep_optimizer": True, "lr_decay": 0.9}},
    "tiny": {"partition": {"name": "dirichlet", "clients": 3}, "participation": 0.7, "rounds": 3},
}
"""The kinds of a run on a model or data that are given."""
GIVEN_INSTEAD: tuple[Keys, ...] = (
    *({}, {"keep_optimizer": False}, {"engine": "trainer"}),
    {"engine": "trainer", "keep_optimizer": False},
)
GIVEN_STEPS, GIVEN_SAMPLES = 4, 1200
"""Gradient steps of a local training on them, and samples of which clients get their shares, at most."""
NO_OPTIONS: Keys = MappingProxyType({})


class MethodRuns:
    """A method that is checked, with its runs.

    method: a class or a name; options: what differs from the method's defaults; given: sections of a configuration with
    the model, the data or both on which it runs, instead of those of KINDS. A run is of one of KINDS. Raises
    ConfigError for a method that cannot be loaded. The runs' folders are removed with it.
    """

    def __init__(self, method: str | type[Method], options: Keys = NO_OPTIONS, given: Keys = NO_OPTIONS) -> None:
        self.name = method if isinstance(method, str) else name_of(method)
        self.kind, self.options, self.given = methods.load(self.name), dict(options), given
        self._folder = tempfile.TemporaryDirectory(prefix="fedbench-check-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self._known: dict[str, RecordingHosts | ConfigError] = {}
        self._changes: dict[str, Keys] = {}
        self.resolve = Resolver().resolve

    def close(self) -> None:
        self._folder.cleanup()

    def __enter__(self) -> "MethodRuns":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def config(self, kind: str, **more: Any) -> Config:
        """The configuration of a run. Keys with a dot are given as `train__lr=1`. Raises DoesNotApply."""
        return Config(**self._limited(_merged(self._asked(kind), self._accepted(kind), _nested(more))))

    def _asked(self, kind: str) -> Keys:
        public = {"public": {"size": PUBLIC[kind]}} if "public" in self.kind.needs else {}
        own = {"method": {"name": self.name, **self.options}}
        if not self.given:
            return _merged(SMALL, public, own, KINDS[kind])
        if kind not in GIVEN_KINDS:
            raise DoesNotApply("it is asked on images of its own: leave out model and data")
        small = {name: value for name, value in SMALL.items() if name not in ("data", "model", "train")}
        amount = {} if {"epochs", "steps"} & set(self.given.get("train", ())) else {"steps": GIVEN_STEPS}
        return _merged(small, {"train": amount}, public, own, GIVEN_KINDS[kind], self.given)

    def _accepted(self, kind: str) -> Keys:
        """The change with which the method takes a run of this kind."""
        if not self.given and kind in ("plain", "tiny"):
            return {}
        if kind not in self._changes:
            self._changes[kind] = self._first_accepted(kind)
        return self._changes[kind]

    def _first_accepted(self, kind: str) -> Keys:
        """Raises the ConfigError that says why the simplest run is refused."""
        refusals, base = [], self._asked(kind)
        even = {"partition": {"name": "iid", "clients": base["partition"].get("clients", CLIENTS)}}
        deals = ({}, even) if self.given and "partition" not in self.given else ({},)
        changes = [{"train": train, **deal} for train in (GIVEN_INSTEAD if self.given else INSTEAD) for deal in deals]
        for change in changes:
            try:
                check_run(self.resolve(Config(**self._limited(_merged(base, change)))))
                return change
            except ConfigError as error:
                refusals.append(error)
        raise refusals[len(deals) - 1]

    def _limited(self, keys: dict[str, Any]) -> dict[str, Any]:
        """The keys with fewer samples, where given data have many."""
        total = {"total": GIVEN_SAMPLES} if "data" in self.given and self._rows > GIVEN_SAMPLES else {}
        return _merged(keys, {"partition": {**total, **keys["partition"]}})

    @cached_property
    def _rows(self) -> int:
        """Training rows of the given data."""
        return Dataset.of_run(Config(data=self.given["data"])).train_rows

    def folder_for(self, name: str) -> Path:
        """A new folder of a run."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def play(
        self,
        config: Config | ResolvedRun,
        hosts: Hosts | None = None,
        folder: Path | None = None,
        resume: bool = False,
        change: Callable[[ResolvedRun], ResolvedRun] = lambda run: run,
    ) -> Record:
        """The records of a run. change: of the resolved run. Raises ConfigError or RunError, as a run does."""
        folder = folder or self.folder_for("run")
        run = self.resolve(config) if isinstance(config, Config) else config
        drive(change(run), folder, hosts or InProcess(), resume=resume)
        return read(folder)

    def stop(self, config: Config, folder: Path, round: int, hosts: Hosts | None = None) -> None:
        """Run until a round is under way, then drop everything but the folder."""
        try:
            drive(self.resolve(config), folder, Stopping(hosts or InProcess(), round))
        except Stopped:
            return
        raise AssertionError(f"round {round} never came")

    def undisturbed(self, kind: str = "plain") -> RecordingHosts:
        """The run from one end to the other, with all that was sent, made once. Raises DoesNotApply if it fails."""
        try:
            return self.first(kind)
        except ConfigError as error:
            raise DoesNotApply("the method's own run fails, as another check says") from error

    def first(self, kind: str) -> RecordingHosts:
        """As `undisturbed`. Raises the ConfigError or RunError of the run."""
        if kind not in self._known:
            try:
                self._known[kind] = self._record(kind)
            except ConfigError as error:
                self._known[kind] = error
        outcome = self._known[kind]
        if isinstance(outcome, ConfigError):
            raise outcome
        return outcome

    def _record(self, kind: str) -> RecordingHosts:
        run = self.resolve(self.config(kind))
        hosts = RecordingHosts(self.folder_for(kind))
        drive(hosts.watching(run), hosts.folder, hosts)
        return hosts

    def records(self, kind: str = "plain") -> Record:
        """The records of the undisturbed run."""
        return read(self.undisturbed(kind).folder)

    @cached_property
    def shorter(self) -> tuple[Path, bool]:
        """The folder of a run of one round less with its checkpoint, and whether it used the number of rounds."""
        self.undisturbed("awkward")
        folder = self.folder_for("shorter")
        self.play(self.config("awkward", rounds=ROUNDS - 1, checkpoint__keep=True), folder=folder)
        kept = checkpoint.load(folder / "checkpoint")
        assert kept is not None
        return folder, kept["uses_rounds"]


def read(folder: Path) -> Record:
    """The bytes of everything whose numbers a run promises."""
    return {name: (folder / name).read_bytes() for name in RECORDS}


def is_store_error(error: ConfigError) -> bool:
    """Whether a run ended because code kept something that no field declares."""
    return LOST in str(error)


def require_equal(one: Record, other: Record, line: str) -> None:
    """Raises CheckFailure if two runs have other records."""
    if one != other:
        raise CheckFailure(line)


def _nested(pairs: Keys) -> Keys:
    """`{"train__lr": 1}` -> `{"train": {"lr": 1}}`."""
    tree: dict[str, Any] = {}
    for key, value in pairs.items():
        section, _, name = key.partition("__")
        if name:
            tree.setdefault(section, {})[name] = value
        else:
            tree[section] = value
    return tree


def _merged(*layers: Keys) -> dict[str, Any]:
    """Sections of later layers change keys of earlier ones; a section with another name begins anew."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            before = merged.get(key)
            before = {"name": before} if isinstance(before, str) and isinstance(value, Mapping) else before
            anew = not (isinstance(before, Mapping) and isinstance(value, Mapping)) or "name" in value
            merged[key] = value if anew else {**before, **value}  # type: ignore[dict-item]
    return merged
