"""Of several jobs with one run one is in work at a time."""

from dataclasses import replace

from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.pending import to_begin
from fedbench.jobs.resolve import resolve
from tests.runtime.rounds import small


def test_a_run_that_is_wanted_twice_is_in_work_once(tmp_path, monkeypatch):
    config, statuses = resolve(small(rounds=4)).config, dict[str, str]()
    monkeypatch.setattr(Job, "outcome", lambda job: Outcome(statuses.get(job.label, "missing")))
    first, other = Job(config, tmp_path / "a", "first", pause=2), Job(config, tmp_path / "b", "other")
    whole, begun = replace(first, label="whole", pause=None), {}
    assert to_begin([first, other, whole], begun, set()) == ([whole, other], []), "the whole includes a part"
    assert to_begin([first], begun, {first.folder}) == ([], [first])
    statuses["whole"] = "failed"
    assert to_begin([first, other], begun, set()) == ([other], []), "what fails is not tried again"
    statuses |= {"first": "stopped", "whole": "missing"}
    assert to_begin([whole], begun, {first.folder}) == ([], [whole]), "its process still writes its checkpoint"
    assert to_begin([whole], begun, set()) == ([whole], []), "what has stopped goes on"
    statuses["whole"] = "done"
    assert to_begin([first, whole], begun, set()) == ([], [])
