"""Words for clients without a score."""

from fedbench.results.unscored import scored_text, unknown_line, worst_label


def test_clients_without_a_score_are_named_by_reason():
    line = unknown_line("AUROC", {5: "one class", 2: "one class"}, 8, "abcdefgh".__getitem__)
    assert line == "AUROC is unknown at 2 of 8 clients (c, f: one class)"
    assert unknown_line("AUROC", dict.fromkeys(range(7), ""), 9, str).endswith("(0, 1, 2, 3, 4 and 2 more)")


def test_the_number_of_scored_clients_is_said_where_some_lack_one():
    assert scored_text([8, 8], 8) == scored_text([], 8) == ""
    assert scored_text([7, 6], 8) == "6 to 7 of 8 clients"


def test_the_worst_of_few_clients_says_what_it_is():
    assert [worst_label([n]) for n in (8, 10, 15, 20)] == [
        *("worst client", "worst client", "worst 2 of 15 clients", "worst tenth")
    ]
    assert worst_label([12, 15]) == "worst 2 clients"
