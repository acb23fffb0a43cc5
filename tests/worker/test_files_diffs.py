from worker.files.diffs import unified


def test_a_diff_shows_hunks_with_context_and_counts() -> None:
    before = b"".join(b"line %d\n" % number for number in range(1, 21))
    after = (
        before.replace(b"line 5\n", b"LINE 5\n").replace(b"line 15\n", b"").replace(b"line 20", b"line 20\nx")
    )
    diff = unified(before, after)
    assert (diff.added, diff.removed, diff.cut) == (2, 2, False)
    rows = diff.text.split("\n")
    assert rows[0] == "@@ -2,7 +2,7 @@"
    assert rows[4:6] == ["-line 5", "+LINE 5"]
    assert rows[-1] == "+x"
    assert diff.counts == "+2 -2"


def test_a_new_and_an_emptied_file_have_diffs_as_diff_counts_them() -> None:
    assert unified(b"", b"a\nb\n").text == "@@ -0,0 +1,2 @@\n+a\n+b"
    assert unified(b"a\n", b"").text == "@@ -1 +0,0 @@\n-a"
    assert unified(b"a\n", b"a\n").text == ""


def test_a_long_diff_is_cut_and_says_so() -> None:
    diff = unified(b"", b"some text\n" * 1000)
    assert diff.cut
    assert diff.added == 1000
    assert len(diff.text) < 5000
    assert diff.counts.endswith("diff cut")
    assert len(unified(b"x" * 100_000, b"y" * 100_000).text) < 5000


def test_a_huge_change_counts_as_replaced_without_a_comparison() -> None:
    before = b"head\n" + b"".join(b"a %d\n" % number for number in range(5000)) + b"tail\n"
    after = b"head\n" + b"".join(b"b %d\n" % number for number in range(4000)) + b"tail\n"
    diff = unified(before, after)
    assert (diff.added, diff.removed, diff.cut) == (4000, 5000, True)
    assert diff.text.startswith("@@ -2,5000 +2,4000 @@\n head\n-a 0")


def test_bytes_that_are_no_utf8_and_cr_are_shown_harmlessly() -> None:
    assert unified(b"r\xe9\r\n", b"x\r\n").text == "@@ -1 +1 @@\n-r\N{REPLACEMENT CHARACTER}\n+x"
