"""Places in shared memory: what was written there is read, and what lies there already is not copied."""

import gc
import os

import pytest
import torch

from fedbench.errors import RunError
from fedbench.runtime.messages.arena import SMALLEST_SHARED, Arena, Files, TensorPlace

LARGE = torch.arange(5000, dtype=torch.float32)


def test_a_file_grows_with_what_is_written_to_it(tmp_path):
    files = Files(tmp_path)
    for size in (SMALLEST_SHARED, 3 * SMALLEST_SHARED, SMALLEST_SHARED):
        tensors = [torch.full((size,), 1.5), torch.arange(size)]
        places = files.write(0, tensors)
        assert all(torch.equal(files.read(place), tensor) for place, tensor in zip(places, tensors, strict=True))
    assert len(list(tmp_path.iterdir())) == 1


def test_an_arena_knows_its_own_tensors_only(tmp_path):
    arena = Arena(tmp_path)
    place, kept = arena.store(LARGE)
    assert arena.store(kept)[0] == place
    assert arena.store(kept[10:])[0] == TensorPlace(place.file, place.offset + 40, (4990,), torch.float32)
    for stranger in (kept.clone(), kept[::2]):
        assert arena.store(stranger)[0].file != place.file


def test_kept_tensors_hold_no_descriptors(tmp_path):
    gc.collect()  # closes what other tests have left open
    arena, before = Arena(tmp_path), len(os.listdir("/proc/self/fd"))
    kept = [arena.store(LARGE + number)[1] for number in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(torch.equal(tensor, LARGE + number) for number, tensor in enumerate(kept))


def test_the_number_of_files_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.runtime.messages.arena.MOST_FILES", 2)
    arena = Arena(tmp_path)
    kept = [arena.store(LARGE)[1] for _ in range(2)]
    with pytest.raises(OSError, match="2 files in use"):
        arena.store(LARGE)
    assert arena.store(kept[0])[1] is kept[0]
    del kept[1]
    assert arena.room == 1
    arena.store(LARGE)


def test_a_message_that_was_deleted_is_not_read_as_zeros(tmp_path):
    writer, reader = Files(tmp_path), Files(tmp_path)
    (place,) = writer.write(0, [LARGE])
    (tmp_path / "0").unlink()
    assert torch.equal(writer.read(place), LARGE)  # mapped already
    with pytest.raises(RunError, match="0: a message in transit was deleted; repeat the command"):
        reader.read(place)
    assert not list(tmp_path.iterdir())
