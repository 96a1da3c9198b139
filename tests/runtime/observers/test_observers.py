"""Several observers are called in order, at every moment that one of them has."""

from typing import Any

from fedbench.runtime.observers.observer import Observer
from fedbench.runtime.observers.observers import Observers

MOMENTS = {name for name in vars(Observer) if name.startswith("on_")}


class Noting(Observer):
    """Notes every call, and answers with its name."""

    def __init__(self, name: str, calls: list[tuple[str, str]]) -> None:
        self.name, self.calls = name, calls

    def __getattribute__(self, moment: str) -> Any:
        if moment not in MOMENTS:
            return super().__getattribute__(moment)
        self.calls.append((self.name, moment))
        return lambda *given: {(-1, self.name): 1.0} if moment == "on_training" else [self.name]


def test_every_moment_reaches_all_of_them():
    calls: list[tuple[str, str]] = []
    both = Observers([Noting("a", calls), Noting("b", calls)])
    nothing: Any = None
    given = {"on_longer_run": 1, "on_begin": 1, "on_evaluation": 1, "on_exchange": 1, "on_end": 1}
    for moment in sorted(MOMENTS):
        found = getattr(both, moment)(*[nothing] * given.get(moment, 2))
        if moment == "on_training":
            assert found == {(-1, "a"): 1.0, (-1, "b"): 1.0}
        elif found is not None:
            assert [*found] == ["a", "b"]
    assert calls == [(name, moment) for moment in sorted(MOMENTS) for name in "ab"]
    assert {name for name in vars(Observers) if name.startswith("on_")} == MOMENTS
