"""What a trial takes of a machine or cluster, and whether there is room for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.jobs.gpu_shares import open_to_trial
from fedbench.jobs.resolve import choose_hosts, this_machine
from fedbench.runtime.ray import cluster


def bundles(config: Config) -> list[dict[str, float]]:
    """The resources of one trial: its driver, which only waits, and its hosts; or one core for a run without hosts."""
    resources = config.resources
    gpu = {"GPU": float(resources.gpus_per_host)} if resources.gpus_per_host else {}
    if resources.hosts == 0:
        return [{"CPU": resources.cpus_per_host, **gpu}]
    return [{}] + [{"CPU": resources.cpus_per_host, **gpu}] * int(resources.hosts)


def need_of(config: Config) -> dict[str, float]:
    """The sum of a trial's resources, by kind."""
    need: dict[str, float] = {}
    for bundle in bundles(config):
        for kind, amount in bundle.items():
            need[kind] = need.get(kind, 0) + amount
    return need


def how_many_fit(total: dict[str, float], need: dict[str, float]) -> int:
    return max(1, int(min((total.get(kind, 0) / amount + 1e-6 for kind, amount in need.items() if amount), default=1)))


def describe_cluster(config: Config) -> str | None:
    """A cluster's machines, and how many trials of this configuration fit; None if there is this machine only."""
    if config.resources.address == "local":
        return None
    trial = config.model_copy(deep=True)
    shares_gpu = open_to_trial(trial)
    choose_hosts(trial)
    with cluster.connect(trial) as ray:
        need = need_of(trial)
        if shares_gpu:
            need.pop("GPU", None)
        needs = " and ".join(f"{amount:g} {kind}" for kind, amount in need.items())
        needs += " and a share of a GPU" if shares_gpu and trial.resources.gpus_per_host else ""
        count, machines = how_many_fit(ray.cluster_resources(), need), cluster.describe_machines(ray)
    most = "at most " if shares_gpu and trial.resources.gpus_per_host else ""
    return (
        f"cluster: {machines}; room for {most}{plural(count, 'trial')} of {needs} at once; results come to this machine"
    )


@contextmanager
def ray_for(trial: Config, trials: int | None) -> Iterator[Any]:
    """Ray for a block that runs trials like this one; None if they need none.

    Raises ConfigError if a trial could never run.
    """
    if not needs_ray(trial, trials):
        yield None
        return
    require("ray", "use --hosts 0 --trials 1")
    with cluster.connect(trial, cpus=1) as ray:
        _require_room(trial, ray.cluster_resources())
        yield ray


def needs_ray(trial: Config, trials: int | None) -> bool:
    """Whether trials like this one run by Ray: not if one runs at a time, in this process."""
    return trials != 1 or trial.resources.hosts != 0


def check_room(trial: Config, trials: int | None) -> None:
    """Raises ConfigError if a trial could never run on this machine; a cluster is asked when the trials begin."""
    if needs_ray(trial, trials) and trial.resources.address == "local" and not cluster.is_joined():
        _require_room(trial, this_machine().machines[0])


def _require_room(trial: Config, total: Mapping[str, float]) -> None:
    for kind, amount in need_of(trial).items():
        if total.get(kind, 0) < amount - 1e-9:
            raise ConfigError(
                f"resources: one trial needs {amount:g} {kind} ({plural(int(trial.resources.hosts), 'host')}), "
                f"there are {total.get(kind, 0):g}: lower --hosts, --cpus-per-host or --gpus-per-host"
            )
