"""A Ray that has died is started anew a few times. That it is noticed is shown in end_to_end/test_death.py."""

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.ray.liveness import RESTARTS, RayLostError, check_alive, check_node, outliving


class Mortal:
    """A body that loses its Ray so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise RayLostError("Ray died")
        return "done"


def test_what_loses_its_ray_is_done_again_and_that_is_said():
    said: list[str] = []
    assert outliving(Mortal(2), said.append) == "done"
    assert said == ["Ray died: it is started anew, and all goes on from the last checkpoints"] * 2


def test_a_ray_that_always_dies_ends_it():
    with pytest.raises(RuntimeError, match=f"Ray died {RESTARTS} times"):
        outliving(Mortal(RESTARTS), lambda line: None)


def test_a_ray_that_lives_is_fine(local_ray):
    check_alive(local_ray)
    check_node(local_ray)


def test_a_mistake_of_the_user_is_not_done_again():
    def refused() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        outliving(refused, lambda line: None)
