"""Measures the parts of exchanges, and writes them to timings.jsonl."""

import os
import time
from collections import defaultdict
from collections.abc import Sequence

from fedbench.runtime.exchange import Reply
from fedbench.runtime.machine.allocator import resident_mb
from fedbench.runtime.observers.observer import EndedExchange, Observer
from fedbench.runtime.observers.recorder import Recorder


class Stopwatch:
    """Adds up the seconds of the parts of an exchange."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self._cpu = time.process_time()
        self._seconds: dict[str, float] = defaultdict(float)

    def lap(self, part: str) -> None:
        """Count the time since the last call for a part."""
        now = time.perf_counter()
        self._seconds[part] += now - self._last
        self._last = now

    def stop(self, replies: Sequence[Reply]) -> dict[str, float]:
        """The seconds of all parts, and of all processors in this process and those of the replies."""
        elsewhere = sum(reply.cpu_seconds for reply in replies if reply.process != os.getpid())
        total, cpu = self._last - self._begun, time.process_time() - self._cpu + elsewhere
        return {**self._seconds, "total": total, "cpu": cpu}


class Timings(Observer):
    """Writes a line of each exchange."""

    def __init__(self, seed: int, recorder: Recorder) -> None:
        self.seed, self.recorder = seed, recorder

    def on_exchange(self, ended: EndedExchange) -> None:
        replies, seconds = ended.replies, ended.seconds
        busy = [reply.busy_seconds for reply in replies]
        here = {os.getpid(): resident_mb()}
        timing = {
            "seed": self.seed,
            "exchange": ended.number,
            "train": max(reply.train_seconds for reply in replies),
            "comm": max(0.0, seconds["exchange"] - max(busy)),
            "eval": max(reply.eval_seconds for reply in replies),
            **{part: seconds[part] for part in ("server", "log", "total", "cpu")},
            "host_busy": [round(b, 6) for b in busy],
            "rss_mb": sum({**here, **{reply.process: reply.rss_mb for reply in replies}}.values()),
            "gpu_mb": sum(reply.gpu_mb for reply in replies),
        }
        self.recorder.write_timing(timing)
