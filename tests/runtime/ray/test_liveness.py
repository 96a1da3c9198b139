"""A Ray that has died is started again a few times. That it is noticed is shown in end_to_end/test_death.py."""

import pytest

from fedbench.errors import ConfigError, RunError
from fedbench.runtime import retries
from fedbench.runtime.ray.liveness import RayLostError, answers, check_alive, check_node, ray_restarts


def until_done(deaths: int, said: list[str]) -> int:
    """How often a block was tried whose Ray dies so many times."""
    tried = 0
    for attempt in ray_restarts(said.append):
        with attempt:
            tried += 1
            if tried <= deaths:
                raise RayLostError("Ray died")
    return tried


def test_a_block_that_loses_its_ray_is_done_again_and_that_is_said():
    said: list[str] = []
    assert until_done(2, said) == 3
    assert said == ["Ray died: starting it again and continuing from the last checkpoints"] * 2


def test_a_ray_that_always_dies_ends_it():
    with pytest.raises(RunError, match=f"Ray died {retries.RAY} times"):
        until_done(retries.RAY, [])


def test_a_library_that_catches_exceptions_does_not_clean_up_in_a_ray_that_is_dead():
    def library() -> None:
        try:
            raise RayLostError("Ray died")
        except Exception:  # as Ray Tune does, whose clean-up asks Ray
            pytest.fail("a dead Ray would be waited for")

    with pytest.raises(RayLostError):
        library()


def test_a_ray_that_lives_is_fine(local_ray):
    check_alive(local_ray)
    check_node(local_ray)


def test_nothing_is_asked_of_ray_while_the_process_is_interrupted(local_ray):
    assert answers(local_ray)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert not answers(local_ray)


def test_a_mistake_of_the_user_is_not_done_again():
    attempts = ray_restarts(lambda line: None)
    with pytest.raises(ConfigError, match="no"), next(attempts):
        raise ConfigError("no")
    assert list(attempts) == []
