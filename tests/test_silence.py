"""A library's logger is as it was afterwards, also where a block fails."""

import logging

import pytest

from fedbench.silence import silence_logger


def test_a_logger_is_quiet_for_a_block_alone(caplog):
    logger = logging.getLogger("loud")
    logger.setLevel(logging.INFO)
    with silence_logger("loud"):
        logger.info("not heard")
    with pytest.raises(ZeroDivisionError), silence_logger("loud"):
        1 / 0  # noqa: B018
    logger.info("heard")
    assert caplog.messages == ["heard"]
