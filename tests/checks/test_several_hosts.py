from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.several_hosts import SeveralHosts, travelled


def test_several_hosts_have_the_bits_of_one_process():
    with MethodRuns("ditto") as runs:
        assert runs.play(runs.config("tiny"), SeveralHosts(2)) == runs.records("tiny")


def test_what_travels_is_a_copy():
    value = {"a": [1, 2]}
    assert travelled(value) == value
    assert travelled(value)["a"] is not value["a"]
