"""The server half alone: seconds and memory for the uploads of many participants of an avgcnn.

    python benchmarks/server.py [--methods fedavg fedcac fedamp] [--participants 100 1000] [--rounds 3] [--hosts 4]

Uploads are made, not trained: the start model with noise, and for fedcac a mask of half of its parameters. Each number
comes from a process of its own; a round is one aggregation, and the first is not counted. Memory is the largest
resident set beyond what the process had before the first upload was made; what the driver holds is in it: all uploads,
or the totals of so many hosts, where hosts add uploads up. What that takes them is told for one upload.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

MASKED = ("fedcac",)


def uploads_of(parts: Any, participants: int, round: int) -> Iterator[Any]:
    """What so many clients would send in a round, one after the other."""
    import torch

    from fedbench.aggregation.packed import mask_to_bits
    from fedbench.methods.messages import Upload, zero_bytes

    initial, stream = parts.learner.initial(), torch.Generator().manual_seed(round)
    for client in range(participants):
        fields: dict[str, Any] = {"buffers": initial.buffers.clone(), "counters": zero_bytes(initial.counters)}
        fields["params"] = torch.randn(initial.params.shape, generator=stream).mul_(0.01).add_(initial.params)
        if parts.run.config.method.name in MASKED:
            fields["mask"] = mask_to_bits(torch.rand(initial.params.shape, generator=stream) < 0.5)
        yield Upload(client, 50, **fields)


def measure(method: str, participants: int, rounds: int, hosts: int) -> dict[str, float]:
    """Median seconds, processor seconds and the largest memory of aggregations in this process.

    And seconds that a host needs to add one upload to its total; 0 where it does not.
    """
    import torch

    from fedbench.config import Config
    from fedbench.data.partitions import partition
    from fedbench.jobs.resolve import resolve
    from fedbench.runtime.build import build_parts, make_method
    from fedbench.runtime.machine.allocator import keep_freed_memory, resident_mb
    from fedbench.runtime.uploads.sums import Total, merged_uploads, upload_shares

    torch.set_num_threads(1)
    keep_freed_memory()
    data = {"name": "benchmarks.throughput:random_images", "val": 0}
    asked = Config(method=method, data=data, partition="iid", model="avgcnn", resources={"hosts": 0})
    resolved = resolve(asked)
    config, dataset = resolved.config, resolved.dataset
    parts = build_parts(resolved, partition(dataset, config, 0), 0)
    context = replace(parts.context, sizes=(50,) * participants, participants_per_round=participants)
    parts = replace(parts, context=context, method=make_method(resolved, context))
    server, before = parts.method.start(parts.learner.initial()), resident_mb()
    walls, clocks, added = [], [], [0.0]
    shares = upload_shares(parts.method, range(participants), "cpu")
    for round in range(rounds + 1):
        server.round, server.participants, server.traced = round + 1, list(range(participants)), False
        uploads, totals = [], [Total() for _ in range(hosts)]
        for upload in uploads_of(parts, participants, round):
            begun = time.process_time()
            if shares:
                totals[upload.client % hosts].take(upload, shares[upload.client])
                added.append(time.process_time() - begun)
            uploads.append(upload)
        wall, clock = time.perf_counter(), time.process_time()
        parts.method.aggregate(server, merged_uploads(uploads, totals, shares))
        walls.append(time.perf_counter() - wall)
        clocks.append(time.process_time() - clock)
        del uploads, totals
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = {"s": statistics.median(walls[1:]), "cpu_s": statistics.median(clocks[1:]), "mb": peak - before}
    return cost | {"added_s": statistics.median(added)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedcac", "fedamp"])
    parser.add_argument("--participants", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--here", action="store_true", help="measure the first of both in this process, as JSON")
    asked = parser.parse_args()
    if min(*asked.participants, asked.rounds, asked.hosts) < 1:
        parser.error("--participants, --rounds and --hosts are at least 1")
    if asked.here:
        print(json.dumps(measure(asked.methods[0], asked.participants[0], asked.rounds, asked.hosts)))
        return
    for method in asked.methods:
        for count in asked.participants:
            words = ["--methods", method, "--participants", str(count), "--rounds", str(asked.rounds)]
            words += ["--hosts", str(asked.hosts), "--here"]
            told = subprocess.run(
                [sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, cwd=os.getcwd()
            )
            cost = json.loads(told.stdout)
            print(
                f"{method}, {count} participants: {cost['s']:.2f} s, {cost['cpu_s']:.2f} s of processors, "
                f"{cost['mb']:.0f} MB"
                + (f"; {1000 * cost['added_s']:.1f} ms at a host for every upload" if cost["added_s"] else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
