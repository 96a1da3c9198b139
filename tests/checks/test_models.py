"""Wrong models are caught by the check that is there for it, and right ones pass all of them."""

import pytest

from fedbench.checks.model_fits import ModelFits
from fedbench.checks.models import MODEL_CHECKS
from fedbench.config import Config
from tests.checks.wrong_models import WRONG, Net

BY_NAME = {check.name: check for check in MODEL_CHECKS}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_model_is_caught_by_its_check(kind):
    result = BY_NAME[kind.found_by](ModelFits(Config(model=kind)))
    assert result.outcome == "failed", result
    assert kind.words in result.line


@pytest.mark.parametrize("model", [Net, "mlp"])
def test_a_right_model_passes_all(model):
    fits = ModelFits(Config(model=model))
    results = [check(fits) for check in MODEL_CHECKS]
    assert [result for result in results if result.outcome != "passed"] == []
    said = {result.name: result.line for result in results}
    assert "difference 0)" in said["lightning"]
    assert "own loop" in said["runs"]
    assert "fedper shares" in said["shared"]
