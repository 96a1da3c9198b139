"""A stream of work on a GPU, with the CUDA graphs that are replayed on it."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


class GraphStream:
    """A stream and the memory of its graphs, which are replayed one after another and therefore share it."""

    def __init__(self, device: torch.device) -> None:
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def active(self) -> AbstractContextManager[None]:
        """A block whose work goes to this stream."""
        return torch.cuda.stream(self._stream)

    def follow(self) -> None:
        """Waits for the work of the current stream."""
        self._stream.wait_stream(torch.cuda.current_stream())

    def lead(self) -> None:
        """Has the current stream wait for this one."""
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as a function that repeats it, on the same memory. Does not do it yet. Called in `active`."""
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        gc.disable()  # a graph that nobody needs any more must not be deleted during a capture, which would fail
        try:
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                work()
        finally:
            if collects:
                gc.enable()
        return graph.replay

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """A block in which operations that wait for the GPU raise RuntimeError: a graph cannot hold them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that this mode does not yet know all such operations
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)
