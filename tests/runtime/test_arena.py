"""Places in shared memory: what was written there is read, and what lies there already is not copied."""

import pytest
import torch

from fedbench.errors import RunError
from fedbench.runtime.arena import SMALLEST_SHARED, Arena, Files, TensorPlace

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


def test_a_message_that_was_deleted_is_not_read_as_zeros(tmp_path):
    writer, reader = Files(tmp_path), Files(tmp_path)
    (place,) = writer.write(0, [LARGE])
    (tmp_path / "0").unlink()
    assert torch.equal(writer.read(place), LARGE)  # mapped already
    with pytest.raises(RunError, match="0: a message in transit was deleted; repeat the command"):
        reader.read(place)
    assert not list(tmp_path.iterdir())
