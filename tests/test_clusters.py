"""Files that start clusters are complete: Ray's own schema, Kubernetes' schemas and shellcheck accept them."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

autoscaler = pytest.importorskip(
    "ray.autoscaler._private.util", reason="Ray keeps its check of cluster files elsewhere"
)
kuberay = pytest.importorskip(
    "ray.autoscaler._private.kuberay.autoscaling_config", reason="Ray keeps its reading of KubeRay elsewhere"
)

ROOT = Path(__file__).parents[1]
CLOUDS = ("cluster.yaml", "clusters/gcp.yaml", "clusters/azure.yaml")
FILES = (*CLOUDS, "clusters/local.yaml")
IMAGES = {"aws": "ImageId", "gcp": "sourceImage", "azure": "imageOffer"}
PACKAGES = {"aws": "boto3", "gcp": "google-api-python-client", "azure": "azure-mgmt-compute"}
INSTALLED = (
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "fedbench",
    "papers",
    "tune_spaces",
    "experiments",
)


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "clusters" / "kuberay" / name).read_text()))


def validate(cluster: dict[str, Any]) -> dict[str, Any]:
    prepared = autoscaler.prepare_config(cluster)
    autoscaler.validate_config(prepared)
    return prepared


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_it(name):
    prepared = validate(read(name))
    assert prepared["head_node_type"] in prepared["available_node_types"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(max_worker=3),
        lambda c: c.update(head_node_type="hed"),
        lambda c: c["available_node_types"]["gpu"].update(min_workers=9),
    ],
)
def test_rays_check_can_fail(damage: Callable[[dict[str, Any]], None]):
    cluster = read("cluster.yaml")
    damage(cluster)
    with pytest.raises(Exception):  # noqa: B017 - whatever Ray raises
        validate(cluster)


@pytest.mark.parametrize("name", CLOUDS)
def test_workers_offer_gpus_and_the_head_offers_no_cores(name):
    cluster = read(name)
    head, gpu = (cluster["available_node_types"][kind] for kind in ("head", "gpu"))
    assert head["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in cluster["head_start_ray_commands"][-1]
    assert cluster["max_workers"] >= gpu["max_workers"] >= gpu["min_workers"]
    if cluster["provider"]["type"] != "aws":  # where Ray reads them off the instance type
        assert gpu["resources"]["GPU"] == 1


@pytest.mark.parametrize("name", CLOUDS)
def test_what_is_needed_once_is_said_at_the_top(name):
    cluster, text = read(name), (ROOT / name).read_text()
    top = text[: text.index("cluster_name")]
    package = PACKAGES[cluster["provider"]["type"]]
    assert package in top
    assert package in cluster["head_setup_commands"][0]
    for kind in cluster["available_node_types"].values():
        assert IMAGES[cluster["provider"]["type"]] in str(kind["node_config"])


def test_the_line_at_the_top_puts_an_image_in_the_place_of_the_one_that_cannot_be(tmp_path):
    text = (ROOT / "cluster.yaml").read_text()
    pattern = re.search(r'sed -i "(s/ami.*\$/)\$\(aws ssm', text).group(1)  # type: ignore[union-attr]
    copy = tmp_path / "cluster.yaml"
    copy.write_text(text)
    subprocess.run(["sed", "-i", f"{pattern}ami-0abc/", copy], check=True)
    images = {
        kind["node_config"]["ImageId"] for kind in yaml.safe_load(copy.read_text())["available_node_types"].values()
    }
    assert images == {"ami-0abc"}


@pytest.mark.parametrize("name", FILES)
def test_machines_install_this_checkout_with_the_constraints(name):
    cluster = read(name)
    assert sorted(cluster["file_mounts"].values()) == sorted(INSTALLED)
    assert all((ROOT / source).exists() for source in cluster["file_mounts"].values())
    install = next(line for line in cluster["setup_commands"] if "pip install" in line and " -e " in line)
    assert '-c $HOME/fedbench/constraints.txt -e "$HOME/fedbench[all]"' in install


@pytest.mark.parametrize("name", FILES)
def test_a_lost_machine_is_noticed_within_20_seconds(name):
    start = read(name)["head_start_ray_commands"][-1]
    period, limit, failures = (
        int(re.search(rf"RAY_health_check_{key}=(\d+)", start).group(1))  # type: ignore[union-attr]
        for key in ("period_ms", "timeout_ms", "failure_threshold")
    )
    assert (period + limit) * failures <= 20_000


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_written_where_nothing_is_mounted(name):
    assert "/shared" not in (ROOT / name).read_text()


@pytest.mark.parametrize("name", FILES)
def test_one_switch_tells_the_files_apart(name):
    """The commands at the top of every file are the same but for its name."""
    text = (ROOT / name).read_text()
    commands = re.findall(
        r"^#   ((?:ray|fedbench) [^#]*?)(?:   .*)?$", text[: text.index("cluster_name")], re.MULTILINE
    )
    assert [command.split()[1] for command in commands] == ["up", "dashboard", "job", "rsync-down", "down"]
    assert all(name in command for command in commands if not command.startswith("ray job"))


def test_own_machines_all_start():
    assert "RAY_enable_autoscaler_v2=0" in read("clusters/local.yaml")["head_start_ray_commands"][-1]


CLUSTER_KEYS = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP_KEYS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
JOB_KEYS = {"entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit", "rayClusterSpec"}
MANIFESTS = ("raycluster.yaml", "rayjob.yaml")


def cluster_of(name: str) -> dict[str, Any]:
    """The RayCluster of a manifest, as the operator would make it."""
    (manifest,) = documents(name)
    spec = manifest["spec"] if manifest["kind"] == "RayCluster" else manifest["spec"]["rayClusterSpec"]
    return {"metadata": {"name": manifest["metadata"]["name"], "namespace": "default"}, "spec": spec}


def accepted(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def pods(name: str) -> list[dict[str, Any]]:
    spec = cluster_of(name)["spec"]
    return [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


def as_document(pod: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "any"}, "template": pod}


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_accepts_every_pod(name):
    for pod in pods(name):
        accepted(as_document(pod))


def test_kubernetes_accepts_the_place_of_the_results_which_the_heads_mount():
    (claim,) = documents("results.yaml")
    accepted(claim)
    for name in MANIFESTS:
        (volume,) = pods(name)[0]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_kubernetes_check_can_fail():
    pod = pods("raycluster.yaml")[0]
    pod["spec"]["containers"][0]["imag"] = "fedbench"
    with pytest.raises(kubernetes_validate.ValidationError):
        accepted(as_document(pod))


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_say_only_what_kuberay_knows(name):
    spec = cluster_of(name)["spec"]
    assert spec.keys() <= CLUSTER_KEYS
    assert spec["headGroupSpec"].keys() <= {"rayStartParams", "template"}
    assert all(group.keys() <= GROUP_KEYS for group in spec["workerGroupSpecs"])
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    (manifest,) = documents(name)
    assert manifest["apiVersion"] == "ray.io/v1"
    assert manifest["kind"] == "RayCluster" or manifest["spec"].keys() <= JOB_KEYS


@pytest.mark.parametrize("name", MANIFESTS)
def test_rays_autoscaler_reads_gpu_workers_and_a_head_without_cores(name):
    kinds = kuberay._derive_autoscaling_config_from_ray_cr(cluster_of(name))["available_node_types"]
    assert kinds["headgroup"]["resources"]["CPU"] == 0
    assert kinds["gpu"]["resources"]["GPU"] == 1
    assert kinds["gpu"]["max_workers"] >= kinds["gpu"]["min_workers"] >= 1


def test_manifests_and_image_have_the_ray_of_the_constraints():
    (version,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert {cluster_of(name)["spec"]["rayVersion"] for name in MANIFESTS} == {version}
    image = (ROOT / "clusters" / "kuberay" / "Dockerfile").read_text()
    assert "-c constraints.txt -e '.[all]'" in image
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE) for word in line.split()}
    assert copied == set(INSTALLED)
    ignored = (ROOT / "clusters" / "kuberay" / "Dockerfile.dockerignore").read_text()
    assert {line[1:] for line in ignored.splitlines() if line.startswith("!")} == copied


SLURM = ROOT / "clusters" / "slurm.sbatch"


def test_shellcheck_has_nothing_to_say():
    checked = subprocess.run([Path(sys.executable).with_name("shellcheck"), SLURM], capture_output=True, text=True)
    assert checked.stdout == ""
    assert checked.returncode == 0


def test_the_job_tells_how_it_is_used_when_it_is_told_nothing():
    told = subprocess.run(["bash", SLURM], capture_output=True, text=True)
    assert told.returncode == 2
    assert told.stderr.startswith("usage: sbatch clusters/slurm.sbatch COMMAND")
