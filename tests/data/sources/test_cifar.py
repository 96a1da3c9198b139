"""CIFAR's files, whatever folder they lie in."""

import pytest

from tests.data.loading import load, refused


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_cifar_from_a_root(cifar, below):
    dataset = load("cifar10", root=cifar / below)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (20, 4, (3, 32, 32))
    assert dataset.samples[::4, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.labels[3::4].tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.class_names[0] == "class0"
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_a_pickle_without_the_published_checksum_is_not_opened(cifar, tmp_path):
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "opened").encode() + b"'\ntR."
    (cifar / "cifar-10-batches-py" / "data_batch_3").write_bytes(trap)
    assert "data_batch_3: not the published file (MD5 differs)" in refused(load, "cifar10", root=cifar)
    assert not (tmp_path / "opened").exists()
