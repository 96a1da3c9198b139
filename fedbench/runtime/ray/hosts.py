"""Hosts as Ray actors, on the driver's machine and on others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import RunError
from fedbench.runtime import retries
from fedbench.runtime.ray.host_actor import HostActor, HostAddress, HostStatus
from fedbench.runtime.ray.liveness import MEMORY_REMEDY
from fedbench.runtime.ray.placement_groups import reserve

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.config import ResourcesConfig
    from fedbench.runtime.build import RunParts
    from fedbench.runtime.exchange import Order, Relocation, Reply, Setup
    from fedbench.runtime.messages.channel import PackedOrder
    from fedbench.runtime.states.store import Versions


class RayHosts:
    """Hosts as Ray actors, each pinned to its bundle of a placement group.

    A host that dies is started again and repeats its part of the exchange. It continues with the states of its
    predecessor, unless they were lost with its machine. group: with a bundle for every host; None: that of the trial
    in this process, or a new one.
    """

    def __init__(self, count: int, cpus: float, gpus: float, group: Any = None) -> None:
        import ray

        self._ray, self.count, self._cpus, self._gpus = ray, count, cpus, gpus
        self.device = "cuda" if gpus else "cpu"
        self.remarks: list[str] = []
        self._node = ray.get_runtime_context().get_node_id()
        self._near = [True] * count
        self._scratch: Any = None
        self._states: Any = None
        self._group, self._offset, self._own = (group, 0, False) if group else self._placement()
        # Only a trial is tried again with more of a GPU.
        self._gpu_share = gpus if group is None and not self._own else 1.0
        self._actors: list[Any] = [self._create(i) for i in range(count)]

    @classmethod
    def of(cls, resources: ResourcesConfig, group: Any = None) -> RayHosts:
        """The hosts that `resources.*` specifies."""
        return cls(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host), group)

    def _placement(self) -> tuple[Any, int, bool]:
        """This process's placement group, whose last bundles are for the hosts, or a new one."""
        from ray.util import get_current_placement_group

        group = get_current_placement_group()
        if group is not None and len(group.bundle_specs) >= self.count:
            return group, len(group.bundle_specs) - self.count, False
        return reserve(self.count, self._cpus, self._gpus), 0, True

    def _create(self, index: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._offset + index)
        actor = self._ray.remote(HostActor).options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
        )
        return actor.remote()

    def begin(self, setup: Setup, parts: RunParts | None = None) -> None:
        from fedbench.runtime.messages.channel import DriverEnd
        from fedbench.runtime.states.scratch import Scratch, shared_memory

        self.end()
        resources = setup.config.resources
        self._base = resources.scratch
        self._scratch = Scratch(resources.scratch or shared_memory(setup.message_bytes))
        self._states = Scratch(resources.scratch, bytes=setup.state_bytes) if resources.states != "memory" else None
        self._data = setup.data
        self._setup = self._ray.put(replace(setup, device=self.device, gpu_share=self._gpu_share))
        self._channel = DriverEnd(self._scratch.folder / "messages", self._ray.put)
        references = [self._begin(i) for i in range(self.count)]
        statuses = [
            self._await_answer(i, "at the start", partial(self._begin, i), ref, retries.WAIT_FOR_PLACES)
            for i, ref in enumerate(references)
        ]
        files = self._files() if any(status.lacks_data for status in statuses) else {}
        for index, status in enumerate(statuses):
            if status.lacks_data:
                ask = partial(self._begin, index, files)
                statuses[index] = self._await_answer(index, "while it got the data", ask, ask())
        self._near = [status.node == self._node for status in statuses]
        if not all(self._near) or resources.address != "local":
            each = f"{self._cpus:g} CPU" + (f" and {self._gpus:g} GPU" if self._gpus else "")
            kept = f"files in {self._states.folder.parent}" if self._states else "in memory"
            self.remarks.append(
                f"hosts: {placement_text(statuses)}, each with {each}; private states lie on the machines of their "
                f"hosts ({kept})"
            )

    def _begin(self, index: int, files: Mapping[str, Any] | None = None) -> Any:
        states = self._states and self._states.folder
        address = HostAddress(index, self._node, self._scratch.folder, self._base, states)
        return self._actors[index].begin.remote(self._setup, address, files)

    def _files(self) -> dict[str, Any]:
        """The data set in Ray's object store, for machines that lack it."""
        assert self._data is not None
        return {name: self._ray.put(content) for name, content in self._data.files().items()}

    def _value_of(self, reference: Any, seconds: float | None) -> Any:
        """The value of a reference. Raises GetTimeoutError if it takes more than this many seconds."""
        from fedbench.errors import ConfigError
        from fedbench.runtime.states.store import StateLostError

        try:
            return self._ray.get(reference, timeout=seconds)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ConfigError | StateLostError | OSError) else error from None

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        self._channel.begin_exchange()
        self._packed: dict[int, PackedOrder] = {}
        self._arrivals: dict[int, list[tuple[Versions, Any]]] = {}
        self._move(moves)
        references = [self._send(i, order) for i, order in enumerate(orders)]
        return [self._receive_reply(i, reference, orders[i]) for i, reference in enumerate(references)]

    def empty_like(self, tensor: Tensor) -> Tensor:
        return self._channel.empty_like(tensor)

    def _move(self, moves: Sequence[Relocation]) -> None:
        """Send states from store to store; their content does not pass through this process."""
        ways = sorted({(move.source, move.target) for move in moves})
        leaving = [{m.client: m.kept for m in moves if (m.source, m.target) == way} for way in ways]
        given: list[Any] = []

        def give(source: int, versions: Versions) -> Any:
            sent, contents = self._actors[source].give.options(num_returns=2).remote(versions)
            given.append(contents)
            return sent

        for (source, target), versions in zip(ways, leaving, strict=True):
            ask = partial(give, source, versions)
            self._await_answer(source, "while clients moved", ask, ask())
            self._arrivals.setdefault(target, []).append((versions, given[-1]))

    def _send(self, index: int, order: Order) -> Any:
        if index in self._packed:  # its host is dead
            self._channel.release(self._packed[index])
        for versions, contents in self._arrivals.get(index, ()):
            self._actors[index].take.remote(versions, contents)
        self._packed[index], references = self._channel.pack(order, self._near[index])
        return self._actors[index].work.remote(self._packed[index], *references)

    def _receive_reply(self, index: int, reference: Any, order: Order) -> Reply:
        during = f"in exchange {order.number}"
        answer = self._await_answer(index, during, partial(self._send, index, order), reference)
        return self._channel.open(self._packed[index], *answer)

    def _await_answer(
        self, index: int, during: str, ask: Callable[[], Any], reference: Any, seconds: float | None = None
    ) -> Any:
        """The answer of a host; if it dies first or takes longer, it is started again and asked again."""
        known = self._ray.exceptions
        for deaths in range(1, retries.HOST + 1):
            try:
                return self._value_of(reference, seconds)
            except (known.RayActorError, known.OutOfMemoryError, known.GetTimeoutError) as error:
                error.__traceback__ = None  # Ray keeps the error, whose frames would keep the exchange's tensors
                late = isinstance(error, known.GetTimeoutError)
                what = f"did not answer within {seconds:g} s" if late else "died"
                what = "was ended by Ray for want of memory" if isinstance(error, known.OutOfMemoryError) else what
                if deaths < retries.HOST:
                    self.remarks.append(f"host {index} {what} {during} and was started again")
                    self._remake(index)
                    reference = ask()
        raise RunError(f"host {index} died {retries.HOST} times {during}: is its memory exhausted? {MEMORY_REMEDY}")

    def _remake(self, index: int) -> None:
        """Start a host again. Raises RunError if no machine has a place for it."""
        deadline = time.monotonic() + retries.WAIT_FOR_PLACES
        self._ray.kill(self._actors[index])  # it may only be unreachable, and still write
        while (left := deadline - time.monotonic()) > 0:
            self._actors[index] = self._create(index)
            try:
                status = self._value_of(self._begin(index), left)
                if status.lacks_data:
                    status = self._value_of(self._begin(index, self._files()), left)
                self._near[index] = status.node == self._node
                return
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.OutOfMemoryError):
                continue
            except self._ray.exceptions.GetTimeoutError:
                break
        raise RunError(
            f"host {index} found no place within {retries.WAIT_FOR_PLACES:g} s after its machine was lost: bring the "
            "machine back, or continue with fewer --hosts"
        )

    def snapshot(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        """Hosts on this machine write their shards; other hosts send their states here to be written."""
        from fedbench.runtime.states.store import write_shard

        def request(index: int) -> Any:
            states, actor, path = versions[index], self._actors[index], paths[index].absolute()
            return actor.snapshot.remote(states, path) if self._near[index] else actor.give.remote(states)

        for index, answer in self._ask_all(
            [i for i, states in enumerate(versions) if states], "while states were kept", request
        ):
            if answer is not None:
                write_shard(versions[index], answer[1], paths[index])

    def restore(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        """Hosts on this machine read the shards; the others get the states of their clients."""
        from fedbench.runtime.states.store import contents_of

        whole = [path.absolute() for path in paths]

        def request(index: int) -> Any:
            states, actor = versions[index], self._actors[index]
            if self._near[index]:
                return actor.restore.remote(states, whole)
            return actor.take.remote(states, contents_of(states, whole))

        for _ in self._ask_all(range(self.count), "while states were restored", request):
            pass

    def _ask_all(self, indices: Sequence[int], during: str, ask: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
        """The answers of hosts, which work at the same time."""
        for index, reference in [(i, ask(i)) for i in indices]:
            yield index, self._await_answer(index, during, partial(ask, index), reference)

    def end(self) -> None:
        if self._scratch is not None:
            for index, near in enumerate(self._near):
                if not near:
                    self._actors[index].end.remote()
            self._scratch.close()
            self._scratch = None
            if self._states is not None:
                self._states.close()

    def close(self) -> None:
        try:
            self.end()
        finally:
            self._release()

    def _release(self) -> None:
        """Give the hosts' places back to the cluster."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._own:
            from ray.util import remove_placement_group

            remove_placement_group(self._group)


def placement_text(statuses: Sequence[HostStatus]) -> str:
    """`2 on node-a, 1 on node-b`."""
    counts = Counter(status.node for status in statuses)
    names = {status.node: status.machine for status in statuses}
    return ", ".join(f"{count} on {names[node]}" for node, count in counts.items())
