"""The GPU memory of a job: what it recorded, and what is expected of it."""

import json

from fedbench.jobs.gpu_memory import USUAL_MB, estimated_mb, measured_mb, smallest_gpu_mb
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.runtime.machine.gpu import CONTEXT_MB
from tests.runtime.rounds import play, small


def job(folder, **more) -> Job:
    return Job(resolve(small(**more)).config, folder, "mine")


def test_the_most_that_was_recorded_counts_per_host(tmp_path):
    mine = job(tmp_path)
    assert measured_mb(mine) is None
    lines = [{"seed": 0, "exchange": number, "gpu_mb": mb} for number, mb in enumerate([900, 2000, 1500])]
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "timings.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"seed": 0, "exchange": 3}])) + "\n")
    assert measured_mb(mine) == 2000
    mine.config.resources.hosts = 4
    assert measured_mb(mine) == 500


def test_a_run_without_a_gpu_has_taken_none(tmp_path):
    mine = job(tmp_path, rounds=1)
    play(mine.config, tmp_path)
    assert measured_mb(mine) is None


def test_an_estimate_counts_models_batches_and_data(tmp_path):
    """64 inputs, 1000 hidden units, 10 classes: 75,010 numbers of 4 bytes, in 6 + 4 * 10 vectors, 13.8 MB.

    A sample of 64 numbers of 4 bytes keeps itself, twice the hidden units (before and after the ReLU, which may share
    memory) and some outputs, and as much again for gradients: about 8 to 18 kB, times 500 samples.
    """
    taken = estimated_mb(job(tmp_path, model={"name": "mlp", "hidden": 1000})) - CONTEXT_MB
    assert 13.2 + 3.5 < taken < 13.2 + 12
    wider = estimated_mb(job(tmp_path, model={"name": "mlp", "hidden": 1000}, train__width=20)) - CONTEXT_MB
    assert 10 < wider - taken < 25


def test_a_model_that_takes_no_step_here_has_no_estimate(tmp_path):
    mine = job(tmp_path)
    mine.config.model.hidden = "many"
    assert estimated_mb(mine) is None


def test_a_machine_that_shows_no_gpu_counts_as_a_usual_one(local_ray):
    """Ray believes that this machine has one."""
    nodes = [node for node in local_ray.nodes() if node["Alive"]]
    assert smallest_gpu_mb(local_ray, nodes) == USUAL_MB
    assert smallest_gpu_mb(local_ray, [{"Resources": {"CPU": 8.0}}]) == USUAL_MB
