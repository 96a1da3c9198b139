"""pFedGate's local work beside the same steps in plain PyTorch: passes through the model leave out its gate's own.

    python benchmarks/gate.py [--images 100] [--repeats 12]

One avgcnn client of random images, 5 epochs of the gate and 5 of the model in turn, batches of 20. Both train anew each
time, one after the other; medians.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

EPOCHS, BATCH, RATE, CLIP = 5, 20, 0.1, 10.0


def plain(net: Any, gate: Any, images: Any, labels: Any) -> None:
    """The method as one would write it down: gate and model in one graph, torch.optim, clipped gradients."""
    import torch
    from torch import nn
    from torch.func import functional_call
    from torch.nn.functional import cross_entropy

    parameters = dict(net.named_parameters())
    of_model = torch.optim.SGD(net.parameters(), RATE, fused=True)
    of_gate = torch.optim.SGD(gate.parameters(), RATE)
    batches = list(zip(images.split(BATCH), labels.split(BATCH), strict=True))

    def step(optimizer: Any, moving: nn.Module, factors: Any, x: Any, y: Any) -> None:
        adapted = {name: part * factor for (name, part), factor in zip(parameters.items(), factors, strict=True)}
        loss = cross_entropy(functional_call(net, adapted, (x,)), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(moving.parameters(), CLIP)
        optimizer.step()

    for _ in range(EPOCHS):
        gate.train()
        net.eval().requires_grad_(False)
        for x, y in batches:
            step(of_gate, gate, gate(x), x, y)
        gate.eval()
        net.train().requires_grad_(True)
        for x, y in batches:
            with torch.no_grad():
                factors = gate(x)
            step(of_model, net, factors, x, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100, help="training images of the client")
    parser.add_argument("--repeats", type=int, default=12, help="fits of each")
    asked = parser.parse_args()
    if asked.images < 1 or asked.images % BATCH or asked.repeats < 1:
        parser.error(f"--images is a multiple of {BATCH}, --repeats at least 1")
    os.chdir(Path(__file__).resolve().parent.parent)

    import torch
    from tests.methods.plain_gate import PlainGate

    from benchmarks.methods import Passes, Rounds
    from fedbench.models import build

    ours = Rounds("pfedgate", asked.images, 1, Passes())
    torch.manual_seed(0)
    images, labels = torch.randn(asked.images, 3, 32, 32), torch.randint(10, (asked.images,))
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(asked.repeats):
        before = time.perf_counter()
        ours.next()
        seconds["ours"].append(time.perf_counter() - before)
        net = build("avgcnn")
        gate = PlainGate((3, 32, 32), len(list(net.parameters())), switch=True)
        before = time.perf_counter()
        plain(net, gate, images, labels)
        seconds["plain"].append(time.perf_counter() - before)
    one, other = (statistics.median(values) for values in seconds.values())
    print(f"ours {one:.3f} s a round, plain PyTorch {other:.3f} s: {one / other:.2f}")


if __name__ == "__main__":
    main()
