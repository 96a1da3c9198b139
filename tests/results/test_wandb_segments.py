"""Offline files of W&B, as far as they were written."""

from fedbench.results.loggers import log_records
from fedbench.results.wandb_segments import history, last_round, mark_synced
from tests.results.wandb_files import attach, lines, segments


def written(folder, rounds=3):
    (logger,) = attach(folder, "wandb")
    for round_ in range(1, rounds + 1):
        log_records([logger], lines(round_))
    logger.finalize()
    return segments(folder)


def test_the_rounds_of_a_segment_are_read_back(tmp_path):
    found = written(tmp_path)
    assert [row["round"] for path in found for row in history(path)] == [1, 2, 3]
    assert (last_round(found), last_round([])) == (3, None)


def test_a_torn_end_is_left_out(tmp_path):
    (path,) = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    rounds = [row["round"] for row in history(path)]
    assert rounds == [1, 2, 3][: len(rounds)] != [1, 2, 3]
    path.write_bytes(whole[:20])
    assert last_round([path]) == -1


def test_a_segment_that_is_marked_is_left_out_by_wandb_sync(tmp_path):
    (path,) = written(tmp_path)
    mark = path.parent / f"{path.name}.synced"
    assert not mark.exists()
    mark_synced(path)
    assert mark.exists()
