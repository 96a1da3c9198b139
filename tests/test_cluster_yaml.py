"""cluster.yaml is complete for `ray up`: Ray's own schema accepts it."""

from pathlib import Path

import pytest
import yaml

autoscaler = pytest.importorskip(
    "ray.autoscaler._private.util", reason="Ray keeps its check of cluster files elsewhere"
)

PATH = Path(__file__).parents[1] / "cluster.yaml"


@pytest.fixture
def cluster():
    return yaml.safe_load(PATH.read_text())


def validate(cluster):
    prepared = autoscaler.prepare_config(cluster)
    autoscaler.validate_config(prepared)
    return prepared


def test_ray_accepts_it(cluster):
    prepared = validate(cluster)
    assert prepared["head_node_type"] in prepared["available_node_types"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(max_worker=3),
        lambda c: c.update(head_node_type="hed"),
        lambda c: c["available_node_types"]["gpu"].update(min_workers=9),
    ],
)
def test_the_check_can_fail(cluster, damage):
    damage(cluster)
    with pytest.raises(Exception):  # noqa: B017 - whatever Ray raises
        validate(cluster)


def test_workers_offer_gpus_and_the_head_offers_none(cluster):
    head, gpu = (cluster["available_node_types"][name] for name in ("head", "gpu"))
    assert gpu["node_config"]["InstanceType"].startswith("g")
    assert head["resources"]["CPU"] == 0
    assert cluster["max_workers"] >= gpu["max_workers"] >= gpu["min_workers"]


def test_machines_install_this_checkout_with_the_constraints(cluster):
    assert all((PATH.parent / source).exists() for source in cluster["file_mounts"].values())
    install = next(line for line in cluster["setup_commands"] if "pip install" in line and " -e " in line)
    assert "-c $HOME/fedbench/constraints.txt -e $HOME/fedbench" in install
    assert any("RAY_health_check_period_ms=2000" in line for line in cluster["head_start_ray_commands"])
