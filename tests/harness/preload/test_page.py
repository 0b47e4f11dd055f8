"""The harness' side of the page."""

import pytest

from diloco_chaos.harness.preload.page import Page, PageFullError, Rule

TOKEN = "0123456789abcdef"
RULE = Rule("*/x", ["write"], "error", "EIO")


def test_a_page_is_the_same_for_all_who_open_it(tmp_path):
    made = Page(tmp_path / "page", TOKEN)
    number = made.arm(RULE)
    opened = Page(tmp_path / "page")
    assert (opened.token, opened.armed) == (TOKEN, 1)
    assert opened.disarm(number)
    assert made.armed == 0
    assert not made.disarm(number)


def test_a_file_that_is_no_page_is_refused(tmp_path):
    (tmp_path / "page").write_bytes(bytes(100_000))
    with pytest.raises(ValueError, match="is no page"):
        Page(tmp_path / "page")


def test_there_is_room_for_sixteen_rules_and_again_when_one_is_over(tmp_path):
    page = Page(tmp_path / "page", TOKEN)
    numbers = [page.arm(RULE) for _ in range(16)]
    with pytest.raises(PageFullError, match="16 faults of files"):
        page.arm(RULE)
    page.disarm(numbers[3])
    assert page.arm(RULE) == numbers[3]


def test_a_rule_that_takes_the_place_of_another_one_counts_from_none(tmp_path):
    page = Page(tmp_path / "page", TOKEN)
    page.disarm(page.arm(RULE))
    hits = page.hits(page.arm(RULE))
    assert (hits.met, hits.calls, hits.lost, hits.first) == (0, {}, 0, "")
