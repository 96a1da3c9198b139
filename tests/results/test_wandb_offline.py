"""The offline parts of a W&B run, as fedbench notes them."""

from fedbench.results.loggers import log_records
from fedbench.results.wandb_offline import last_round, note_last_round, offline_parts, remove_unclosed
from tests.results.wandb_files import attach, lines


def test_a_closed_part_says_which_round_was_its_last(tmp_path):
    (logger,) = attach(tmp_path, "wandb")
    run_id = logger.logger.run.id
    for round_ in (1, 2, 3):
        log_records([logger], lines(round_))
    assert last_round(offline_parts(tmp_path, run_id)) == -1
    logger.finalize("failed")
    assert last_round(offline_parts(tmp_path, run_id)) == 3
    assert offline_parts(tmp_path, run_id[1:]) == []
    assert last_round([]) is None


def test_a_part_that_was_never_closed_is_removed(tmp_path):
    for name in ("20260101_000000-a-b", "20260102_000000-a-b", "20260101_000000-b"):
        (tmp_path / "wandb" / f"offline-run-{name}" / "files").mkdir(parents=True)
    parts = offline_parts(tmp_path, "a-b")
    note_last_round(parts[0], 7)
    assert (len(parts), last_round(parts)) == (2, 7)
    remove_unclosed(parts)
    assert offline_parts(tmp_path, "a-b") == parts[:1]


def test_two_parts_of_one_second_are_both_found(tmp_path):
    for name in ("20260101_000000-a-b", "20260101_000000-a-b-1", "20260101_000000-b-1"):
        (tmp_path / "wandb" / f"offline-run-{name}").mkdir(parents=True)
    assert [part.name[-3:] for part in offline_parts(tmp_path, "a-b")] == ["a-b", "b-1"]
