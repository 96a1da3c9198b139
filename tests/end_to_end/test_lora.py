"""The examples with LoRA adapters: only what is trained travels and is counted."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedbench import Config, load_model, run
from fedbench.jobs.resolve import resolve
from fedbench.runtime.build import build_learner

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEAD = "net.base_model.model.classifier"
TEXT = {"model": {"name": "lora_text:Encoder", "head": HEAD}, "data": {"name": "lora_text:sentences", "collate": "pad"}}
IMAGES = {"model": {"name": "lora_vit:Vit", "head": HEAD}, "data": {"name": "digits"}}
ADAPTERS = 2 * 2 * (4 * 32 + 32 * 4)
"""Two adapted matrices in each of two layers, each with two factors of rank 4 and width 32."""


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    pytest.importorskip("peft", reason="peft is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in ("lora_text", "lora_vit"):
        sys.modules.pop(name, None)


def config(example, method, out):
    small = {"partition": {"name": "iid", "clients": 2}, "rounds": 1, "train": {"epochs": 1, "batch_size": 50}}
    return Config(**example, **small, method=method, resources={"hosts": 0}, out=out)


@pytest.mark.parametrize(("example", "classes"), [(TEXT, 4), (IMAGES, 10)])
def test_only_adapters_and_head_are_sent(tmp_path, example, classes):
    head = classes * 32 + classes
    learner = build_learner(resolve(config(example, "fedavg", None)), 0)
    assert learner.layout.size == ADAPTERS + head
    assert not learner.flat.copies
    assert int(learner.layout.mask("head").sum()) == head
    found = run(config(example, "fedper", tmp_path), report=False).metrics
    assert found["bytes_up"].max() == 2 * 4 * ADAPTERS


@pytest.mark.parametrize("method", ["apfl", "ditto", "fedrod", "knn-per"])
def test_methods_with_states_and_features_of_their_own_take_them(tmp_path, method):
    found = run(config(TEXT, method, tmp_path), report=False).metrics
    assert found["test_accuracy"].notna().any()


@pytest.mark.parametrize(("example", "classes"), [(TEXT, 4), (IMAGES, 10)])
def test_adapters_are_kept_alone_as_peft_loads_them(tmp_path, example, classes):
    """Into the network without adapters, whose frozen parameters are kept once."""
    from peft import PeftModel

    run(config(example, "fedper", tmp_path).model_copy(update={"save_models": True}), report=False)
    folder = tmp_path / "models" / "seed-0"
    own, base = load_file(folder / "client-1" / "after_agg.safetensors"), load_file(folder / "base.safetensors")
    assert sum(tensor.numel() for tensor in own.values()) == ADAPTERS + classes * 32 + classes
    assert not own.keys() & base.keys()
    plain = load_model(tmp_path, 1).net.unload()
    plain.classifier.weight.data.zero_()
    again = PeftModel.from_pretrained(plain, folder / "client-1" / "after_agg-adapter")
    found = {f"net.{name}": tensor for name, tensor in again.state_dict().items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in own.items())
