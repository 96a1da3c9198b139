"""The processes of trials stay for the next stages; those that die are replaced."""

import os
import signal

from ray.tune.utils.object_cache import _ObjectCache

from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.schedule import Stage, run_stages
from fedbench.jobs.tune_processes import idle_processes
from tests.runtime.rounds import play, read, small


def test_processes_stay_for_all_stages_and_one_that_died_between_two_is_replaced(local_ray, tmp_path):
    """Three jobs in each of three stages, two at a time."""
    killed, told = list[int](), list[tuple[str, ...]]()

    def noted(name: str, seed: int) -> Job:
        given = dict(method__name="tests.runtime.accidents:Noted", method__notes=str(tmp_path / f"{name}.notes"))
        config = resolve(small("fedavg", rounds=2, seeds=[seed], **given)).config
        return Job(config, tmp_path / f"{name}{seed}", f"{name}{seed}")

    def processes(name: str) -> set[int]:
        return set(map(int, (tmp_path / f"{name}.notes").read_text().split()))

    def watch(outcomes, progress):
        told.append(tuple(sorted(outcomes)))

    def stages():
        for name in ("first", "second", "third"):
            yield Stage([noted(name, seed) for seed in (1, 2, 3)], watch)
            if name == "second":
                killed.append(min(processes("second")))
                os.kill(killed[0], signal.SIGKILL)

    run_stages(stages(), tmp_path / "scratch", 2)
    assert len(processes("first")) == 2
    assert processes("second") == processes("first")
    assert len(processes("third")) == 2, "a new one"
    assert not processes("third") & {*killed}
    jobs = [noted(name, seed) for name in ("first", "second", "third") for seed in (1, 2, 3)]
    assert {job.outcome() for job in jobs} == {Outcome("done")}
    assert len(set(told)) == 3, "each stage is told of its own jobs"
    assert play(jobs[-1].config, tmp_path / "undisturbed") == read(jobs[-1].folder)


def test_idle_processes_stay_until_a_trial_waits_for_other_resources():
    idle = idle_processes(_ObjectCache)(may_keep_one=True)
    assert all(idle.cache_object("one core", process) for process in (1, 2, 3))
    assert [*idle.flush_cached_objects()] == []
    idle.increase_max("one core")  # a trial waits for what is there
    assert [*idle.flush_cached_objects()] == []
    assert idle.pop_cached_object("one core") == 1
    idle.decrease_max("one core")
    idle.increase_max("a GPU")
    assert not idle.cache_object("one core", 1)
    assert [*idle.flush_cached_objects()] == [2, 3]
    idle.decrease_max("a GPU")
    assert idle.cache_object("one core", 4)
    assert [*idle.flush_cached_objects(force_all=True)] == [4]
