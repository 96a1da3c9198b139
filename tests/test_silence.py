"""A library's logger is as it was afterwards, also where a block fails."""

import logging

import pytest

from fedbench.silence import silenced


def test_a_logger_is_quiet_for_a_block_alone(caplog):
    logger = logging.getLogger("loud")
    logger.setLevel(logging.INFO)
    with silenced("loud"):
        logger.info("not heard")
    with pytest.raises(ZeroDivisionError), silenced("loud"):
        1 / 0  # noqa: B018
    logger.info("heard")
    assert caplog.messages == ["heard"]
