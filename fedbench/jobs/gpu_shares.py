"""Shares of GPUs for the trials of a study: by what they were measured to take, before that by an estimate.

A share decides where a trial runs and nothing else: it is no part of a run's identity, and results do not depend on it.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from pathlib import Path

from fedbench.config import Config
from fedbench.config.execution import EXACT
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.jobs.gpu_memory import USUAL_MB, estimated_mb, measured_mb
from fedbench.jobs.job import Job
from fedbench.runtime import retries
from fedbench.runtime.ray.placement_groups import share_of_gpu

log = logging.getLogger("fedbench")

MARGIN = 1.25
"""Memory that a host is given, as a multiple of what it is expected to take."""
MOST_SHARING = 8
"""Hosts on a GPU at most: it works on them by turns, so that more would only wait for each other."""
DECIDING = ("batch_size", "precision", "engine", "width")
"""Keys of `train` that decide how much memory a model takes."""


class GpuShares:
    """Chooses how much of a GPU each host of a trial gets, for a whole study.

    `note`: the last choice, in one sentence.
    """

    def __init__(self) -> None:
        self.note = ""
        self._tried: dict[tuple[Path | None, str], list[float]] = {}
        self._measured: dict[str, dict[str, float]] = {}
        self._estimated: dict[str, float | None] = {}
        self._least: dict[str, float] = {}
        self._most, self._gpu_mb, self._whole = 1, USUAL_MB, 1.0

    def begin(self, machines: Sequence[dict[str, float]], gpu_mb: float, job: Job, trials: float = inf) -> None:
        """Take the cluster into account: the resources of its machines, and the memory of its smallest GPU.

        trials: how many there are at most at the same time.
        """
        self._gpu_mb = gpu_mb
        self._most = hosts_per_gpu(machines, job, trials)
        # More would be more than the cluster has for the hosts of one trial.
        cpus, hosts = job.config.resources.cpus_per_host, max(1, int(job.config.resources.hosts))
        self._whole = share_of_gpu(machines, cpus, hosts) or 1.0

    def with_share(self, job: Job) -> Job:
        """The job with its share; a given one is kept unless it has proved too small. Logs the choice."""
        if not takes_gpu(job):
            return job
        if job.shares_gpu:
            share, why = self._share(job)
        else:
            share, why = float(job.config.resources.gpus_per_host), "as asked"
            share = max(share, self._least.get(_model_and_data(job), 0.0))
        self._tell(job, share, why)
        return with_share(job, share)

    def learn(self, job: Job, ended: bool = False) -> None:
        """Take note of what a job was measured to take: of the first of its method, and of those that have ended."""
        if not takes_gpu(job):
            return
        known, method = self._measured.setdefault(_model_and_data(job), {}), job.config.method.name
        if (ended or method not in known) and (measured := measured_mb(job)) is not None:
            known[method] = max(measured, known.get(method, 0.0))

    def after_full(self, job: Job) -> Job | None:
        """The job with twice the share, after the GPU was full; None if there is no more or it was tried too often.

        Jobs of the same model and data that have not begun get no less from now on.
        """
        share, hosts = float(job.config.resources.gpus_per_host), max(1, int(job.config.resources.hosts))
        shares = self._tried.setdefault((job.study, job.name), [share * hosts])
        if share >= self._whole or len(shares) > retries.GPU_MEMORY:
            return None
        more = min(self._whole, 2 * share)
        self._least[_model_and_data(job)] = max(more, self._least.get(_model_and_data(job), 0.0))
        shares.append(more * hosts)
        log.warning(
            "%s: the memory of its share of a GPU (%s) is full: trying it again with %s",
            job.name,
            _format_share(share * hosts),
            _format_share(more * hosts),
        )
        return with_share(job, more)

    def too_small(self, study: Path) -> dict[str, list[float]]:
        """By trial of a study, the GPUs that it had each time, if their memory was too small at first."""
        return {name: shares for (owner, name), shares in self._tried.items() if owner == study and len(shares) > 1}

    def _share(self, job: Job) -> tuple[float, str]:
        """The share of one host, and why."""
        kind, method = _model_and_data(job), job.config.method.name
        known = self._measured.get(kind, {})
        need = known.get(method, max(known.values(), default=None))
        how = "measured"
        if need is None:
            if kind not in self._estimated:
                self._estimated[kind] = estimated_mb(job)
            need, how = self._estimated[kind], "estimated"
        fitting = 1 if need is None else max(1, int(self._gpu_mb / (need * MARGIN)))
        fitting = min(fitting, int(1 / self._least.get(kind, EXACT) + EXACT))
        share = min(self._whole, 1 / max(1, min(fitting, self._most)))
        if need is None:
            return share, "how much memory one takes will be known once it runs"
        return share, f"one takes about {need / 1000:.1f} of {self._gpu_mb / 1000:.0f} GB ({how})"

    def _tell(self, job: Job, share: float, why: str) -> None:
        count, hosts = round(1 / share), int(job.config.resources.hosts)
        who = "hosts" if hosts > 1 else "trials"
        what = (
            f"{count} {who} share a GPU ({_format_share(share)} each)"
            if count > 1
            else f"one GPU for each of the {who}"
        )
        note = f"{what}: {why}"
        if note != self.note:
            log.info("%s", note)
        self.note = note


def open_to_trial(config: Config) -> bool:
    """Fill in hosts and their share of a GPU for a trial, as far as they are given; returns whether a share is open.

    Raises ConfigError if what is given contradicts itself.
    """
    resources = config.resources
    if resources.hosts == "auto":  # parallel trials are faster than parallel hosts
        resources.hosts = 0
    if resources.gpus_per_trial == "auto":
        return resources.gpus_per_host == "auto"
    if resources.gpus_per_host != "auto":
        raise ConfigError(
            f"resources.gpus_per_trial = {resources.gpus_per_trial:g}: the hosts of a trial divide them; leave "
            f"resources.gpus_per_host = {resources.gpus_per_host:g} out"
        )
    hosts = max(1, resources.hosts)
    if resources.gpus_per_trial > hosts:
        raise ConfigError(
            f"resources.gpus_per_trial = {resources.gpus_per_trial:g}: a host uses one GPU, and a trial has "
            f"{plural(hosts, 'host')}; take at most {hosts}, or more --hosts"
        )
    resources.gpus_per_host, resources.gpus_per_trial = resources.gpus_per_trial / hosts, "auto"
    return False


def hosts_per_gpu(machines: Sequence[dict[str, float]], job: Job, trials: float = inf) -> int:
    """The most hosts that may share a GPU: as the cores allow, and no more than spread all trials over all GPUs."""
    hosts, cpus = max(1, int(job.config.resources.hosts)), job.config.resources.cpus_per_host
    having = [machine for machine in machines if machine.get("GPU")]
    gpus = sum(int(machine["GPU"]) for machine in having)
    cores = max((int(machine.get("CPU", 0) / cpus / machine["GPU"]) for machine in having), default=1)
    spread = ceil(trials * hosts / gpus) if gpus and trials < inf else MOST_SHARING
    return max(1, min(MOST_SHARING, cores, spread))


def takes_gpu(job: Job) -> bool:
    return bool(job.config.resources.gpus_per_host)


def with_share(job: Job, share: float) -> Job:
    """The job with this share of a GPU for each of its hosts."""
    config = job.config.model_copy(deep=True)
    config.resources.gpus_per_host = share
    return replace(job, config=config)


def _model_and_data(job: Job) -> str:
    config = job.config
    train = config.train.model_dump(mode="json", include=set(DECIDING))
    return json.dumps([config.model.model_dump(mode="json"), config.data.model_dump(mode="json"), train])


def _format_share(share: float) -> str:
    return f"{share:.3g}"
