from fedbench.checks.samples import few_images, odd_images


def test_both_parts_have_all_classes():
    for make, classes in ((few_images, 3), (odd_images, 6)):
        for part in (True, False):
            assert make(part).tensors[1].unique().tolist() == list(range(classes))


def test_one_class_has_two_images_and_one_just_more_than_a_batch():
    counts = odd_images().tensors[1].bincount().tolist()
    assert counts == [2, 10, 11, 20, 20, 20]
