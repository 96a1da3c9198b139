"""Shares of GPUs: how many trials share one, by what they take, and more for those for which it was too little."""

import json

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.gpu_shares import GpuShares, hosts_per_gpu, open_to_trial
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.schedule import run_jobs
from tests.runtime.rounds import described, play, read, small, stop

EIGHT, SIXTEEN = {"CPU": 8.0, "GPU": 1.0}, {"CPU": 16.0, "GPU": 4.0}


def job(folder, method="fedavg", hosts=0, share=1.0, **more) -> Job:
    config = Config(method=method, model="mlp", resources={"hosts": hosts, "gpus_per_host": share}, **more)
    return Job(config, folder, method, shares_gpu=True, study=folder.parent)


def took(job: Job, mb: float) -> Job:
    """Leaves what a job records of its memory."""
    job.folder.mkdir(exist_ok=True)
    (job.folder / "metrics.jsonl").touch()
    (job.folder / "timings.jsonl").write_text(json.dumps({"seed": 0, "exchange": 1, "gpu_mb": mb}) + "\n")
    return job


def shares(first: Job, machines=(EIGHT,), gpu_mb=24_000.0) -> GpuShares:
    made = GpuShares()
    made.begin(machines, gpu_mb, first)
    return made


def share(made: GpuShares, job: Job) -> float:
    return float(made.with_share(job).config.resources.gpus_per_host)


@pytest.mark.parametrize(
    ("machines", "hosts", "trials", "most"),
    [
        ([EIGHT], 0, float("inf"), 8),
        ([{"CPU": 96.0, "GPU": 1.0}], 0, float("inf"), 8),  # more would wait for the GPU
        ([{"CPU": 4.0}, {"CPU": 4.0, "GPU": 1.0}], 0, float("inf"), 4),  # a core each
        ([SIXTEEN], 0, float("inf"), 4),
        ([SIXTEEN], 0, 6, 2),  # six on four GPUs, rather than four on the first
        ([EIGHT, EIGHT], 4, 2, 4),
        ([{"CPU": 1.0, "GPU": 4.0}], 0, float("inf"), 1),
    ],
)
def test_as_many_share_a_gpu_as_have_cores_and_use_all_gpus(machines, hosts, trials, most, tmp_path):
    assert hosts_per_gpu(machines, job(tmp_path / "a", hosts=hosts), trials) == most


def test_what_the_first_trial_was_measured_to_take_decides_for_the_others(tmp_path):
    first, other = job(tmp_path / "a", rounds=9), job(tmp_path / "b", "fedper")
    made = shares(first)
    made.learn(took(first, 4700))  # with a margin of a quarter 5.9 GB: four of them on 24 GB
    assert share(made, first) == 0.25
    assert made.note == "4 trials share a GPU (0.25 each): one takes about 4.7 of 24 GB (measured)"
    assert share(made, other) == 0.25, "of the same model and data, until it is measured itself"
    made.learn(took(other, 11_000))
    assert (share(made, other), share(made, first)) == (1.0, 0.25)
    assert share(made, job(tmp_path / "c", hosts=2, share=0.5)) == 0.25
    assert made.note.startswith("4 hosts share a GPU (0.25 each)")


def test_before_that_a_share_follows_an_estimate(tmp_path):
    """Ten clients train at a time on a GPU: of 8 GB, a small network takes what CUDA takes."""
    few, many = (resolve(small(model={"name": "mlp", "hidden": hidden})).config for hidden in (16, 100_000))
    for config in (few, many):
        config.resources.gpus_per_host = 1.0
    made = shares(Job(few, tmp_path / "a", "few"), gpu_mb=8000.0)
    assert share(made, Job(few, tmp_path / "a", "few", shares_gpu=True)) == 1 / 8
    assert made.note == "8 trials share a GPU (0.125 each): one takes about 0.6 of 8 GB (estimated)"
    assert share(made, Job(many, tmp_path / "b", "many", shares_gpu=True)) == 1 / 2


def test_a_share_that_is_too_small_is_doubled_up_to_a_whole_gpu(tmp_path):
    first = took(job(tmp_path / "a"), 2000)
    made = shares(first)
    made.learn(first)
    again = placed = made.with_share(first)
    assert made.too_small(tmp_path) == {}
    for expected in (0.25, 0.5, 1.0):
        again = made.after_full(again)
        assert again.config.resources.gpus_per_host == pytest.approx(expected)
        assert share(made, job(tmp_path / "later")) == pytest.approx(expected), "others are not tried with less"
    assert made.after_full(again) is None
    assert made.too_small(tmp_path) == {first.name: pytest.approx([0.125, 0.25, 0.5, 1.0])}
    assert made.too_small(tmp_path / "other") == {}
    assert again.folder == placed.folder == first.folder
    assert again.config.key() == first.config.key(), "a share is no part of what a run is"


def test_a_share_that_is_asked_for_is_kept_until_it_proves_too_small(tmp_path):
    asked = Job(job(tmp_path / "a", share=0.5).config, tmp_path / "a", "a")
    made = shares(asked)
    made.learn(took(asked, 100))
    assert share(made, asked) == 0.5
    assert made.note == "2 trials share a GPU (0.5 each): as asked"
    made.after_full(asked)
    assert share(made, asked) == 1.0


def test_hosts_get_no_more_than_there_is_for_all_of_a_trial(tmp_path):
    """Four hosts on two GPUs: half of one each, even if each would fill one."""
    first = took(job(tmp_path / "a", hosts=4, share=0.5), 4 * 20_000)
    made = shares(first, machines=[EIGHT, EIGHT])
    made.learn(first)
    placed = made.with_share(first)
    assert placed.config.resources.gpus_per_host == 0.5
    assert made.after_full(placed) is None


@pytest.mark.parametrize(
    ("resources", "hosts", "share", "is_open"),
    [
        ({}, 0, "auto", True),
        ({"hosts": 4}, 4, "auto", True),
        ({"gpus_per_host": 0.5}, 0, 0.5, False),
        ({"gpus_per_trial": 0.25}, 0, 0.25, False),
        ({"gpus_per_trial": 0.5, "hosts": 4}, 4, 0.125, False),
        ({"gpus_per_trial": 2, "hosts": 4}, 4, 0.5, False),
    ],
)
def test_hosts_divide_the_gpus_of_their_trial(resources, hosts, share, is_open):
    config = Config(resources=resources)
    assert open_to_trial(config) == is_open
    assert (config.resources.hosts, config.resources.gpus_per_host) == (hosts, share)
    assert config.resources.gpus_per_trial == "auto", "a run of the trial's configuration has no trials"


@pytest.mark.parametrize(
    ("resources", "line"),
    [
        ({"gpus_per_trial": 2}, "a host uses one GPU, and a trial has 1 host; take at most 1, or more --hosts"),
        ({"gpus_per_trial": 0.5, "gpus_per_host": 0.5}, "leave resources.gpus_per_host = 0.5 out"),
    ],
)
def test_shares_that_make_no_sense_together_are_refused(resources, line):
    with pytest.raises(ConfigError, match=line):
        open_to_trial(Config(resources=resources))


@pytest.mark.night
def test_trials_on_halves_of_a_gpu_leave_the_bits_of_one_process_also_if_its_memory_is_full(local_ray, tmp_path):
    """Ray believes that there is a GPU. The first trial was begun without one; one of them then needs all of it."""
    file, jobs, expected = tmp_path / "full", [], []
    for seed in range(3):
        asked = small("tests.jobs.memory_hungry:Hungry", method__file=str(file), seeds=[seed], checkpoint__every=1)
        config = resolve(asked).config
        expected.append(play(config, tmp_path / f"alone-{seed}"))
        config.resources.gpus_per_host = 0.5
        jobs.append(Job(config, tmp_path / "run" / f"{seed}", "hungry", study=tmp_path))
    jobs[0].folder.parent.mkdir()
    described(jobs[0].config, jobs[0].folder)
    stop(jobs[0].config, jobs[0].folder, round=2)
    file.touch()
    file.with_suffix(".meeting").mkdir()
    made = GpuShares()
    found = run_jobs(jobs, tmp_path / "scratch", None, lambda *_: None, shares=made)
    assert set(found.values()) == {Outcome("done")}, "two trials wait for each other"
    assert [read(job.folder) for job in jobs] == expected
    (had,) = made.too_small(tmp_path).values()
    assert had == [0.5, 1.0]
