"""How much GPU memory a host of a job takes: as measured while it runs, or estimated before; and how much GPUs have."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedbench.data.partitions import ClientRows, Clients, Partition
from fedbench.engine.learner import Learner
from fedbench.engine.probe import probe
from fedbench.errors import ConfigError
from fedbench.jobs.job import Job
from fedbench.module import seeds
from fedbench.results.reader import Records, is_run
from fedbench.runtime import retries
from fedbench.runtime.build import build_learner
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.machine.gpu import CONTEXT_MB, memory_mb
from fedbench.runtime.resolved import ResolvedRun

USUAL_MB = 16_000.0
"""Memory of a GPU that cannot be asked."""
MODELS = 6
"""Vectors of the model's size that a host holds whatever it trains: start, received, sent, evaluated ones."""
MODELS_PER_CLIENT = 4
"""Such vectors of every client that trains at the same time: weights, gradient, momentum, private entries."""
SAMPLES = 2
"""Samples of the step from which the memory of a batch is estimated."""


def measured_mb(job: Job) -> float | None:
    """The most memory that a host of a job has taken of a GPU so far; None if none has recorded any."""
    if not is_run(job.folder):
        return None
    known = pd.to_numeric(Records(job.folder).timings()["gpu_mb"]).max()
    return float(known) / max(1, int(job.config.resources.hosts)) if known > 0 else None


def estimated_mb(job: Job) -> float | None:
    """The memory that a host is expected to take: CUDA's own, models, and what a step keeps for its gradient.

    A step of two samples is made on this machine and counted. None if the model does not take one here.
    """
    config = job.config.model_copy(deep=True)
    config.train.engine = "loop"  # the others keep what they keep, several clients at a time
    try:
        run = ResolvedRun.of(config)
        learners = [build_learner(run.with_model(name), job.seed) for name in dict.fromkeys(config.model.names)]
        per_sample = max(_bytes_per_sample(run, learner) for learner in learners)
    except ConfigError:
        return None
    model = sum(learner.layout.size * learner.dtype.itemsize for learner in learners)
    train, dataset = job.config.train, run.dataset
    together = train.width if train.engine in ("auto", "graph", "compiled") else 1
    batch = len(dataset.targets) if train.batch_size == "full" else min(train.batch_size, len(dataset.targets))
    vectors = (MODELS + MODELS_PER_CLIENT * together) * model
    largest = max(batch * together, job.config.evaluate.batch_size)
    return CONTEXT_MB + (vectors + per_sample * largest + dataset.samples.nbytes) / 2**20


def _bytes_per_sample(run: ResolvedRun, learner: Learner) -> float:
    """Bytes of the tensors that one step keeps for its gradient, and of the gradients themselves, per sample."""
    dataset, kept = run.dataset, 0
    weights = {parameter.untyped_storage().data_ptr() for parameter in learner.module.parameters()}
    rows, nothing = np.arange(SAMPLES) % len(dataset.targets), np.zeros(0, np.int64)
    held = Partition(Clients.of([ClientRows(rows, nothing, nothing)]))
    data = ClientData(run.config, dataset, held, learner.device, learner.dtype).split([0], "train", ("memory",))

    def note(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.nbytes if tensor.untyped_storage().data_ptr() not in weights else 0
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), seeds.preserved_streams():
        probe(learner, data, dataset.outputs)
    return 2 * kept / SAMPLES + 4 * prod(dataset.shape)


def smallest_gpu_mb(ray: Any, machines: Sequence[dict[str, Any]]) -> float:
    """The memory of the smallest GPU of these machines (as in `ray.nodes()`), which are asked."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tasks = []
    for machine in machines:
        if machine["Resources"].get("GPU"):
            there = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
            options = dict(num_cpus=0, num_gpus=0.01, scheduling_strategy=there)
            tasks.append(ray.remote(memory_mb).options(**options).remote())
    answers, late = ray.wait(tasks, num_returns=len(tasks), timeout=retries.WAIT_FOR_GPUS) if tasks else ([], [])
    for task in late:
        ray.cancel(task)
    return min(filter(None, ray.get(answers)), default=USUAL_MB)
