"""Only the same run with fewer rounds is continued, and only from a checkpoint."""

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.longer_runs import check_longer, shorter_run
from fedbench.jobs.resolve import resolve
from fedbench.studies.run import run
from tests.runtime.rounds import described, small


def test_only_the_same_run_with_fewer_rounds_is_a_shorter_one(tmp_path):
    described(small(rounds=3), tmp_path / "a")
    config = lambda **more: resolve(small(**more)).config  # noqa: E731
    assert shorter_run(tmp_path / "a", config(rounds=4)).rounds == 3
    for other in (config(rounds=3), config(rounds=2), config(rounds=4, train__lr=0.7)):
        assert shorter_run(tmp_path / "a", other) is None
    assert shorter_run(tmp_path / "empty", config(rounds=4)) is None


@pytest.mark.parametrize("keep", [True, False])
def test_a_finished_run_continues_from_a_kept_checkpoint_only(tmp_path, keep):
    config = small(rounds=1, out=str(tmp_path), checkpoint={"keep": keep})
    run(config, report=False)
    if keep:
        assert check_longer(tmp_path, config, 2)
    else:
        with pytest.raises(ConfigError, match="a finished run of 1 round whose last state was not kept"):
            check_longer(tmp_path, config, 2)
