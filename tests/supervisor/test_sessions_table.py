"""The table that `agent sessions` prints."""

from supervisor.screen.sessions import cells, drawn
from supervisor.store.listing import Listed


def listed(title: str, *, here: bool = True, turns: int | None = 3, id_: str = "k3vq7m2a") -> Listed:
    return Listed(id_, title, 1_700_000_000.0, turns, "/home/me/src", here)


def test_each_column_begins_in_the_same_cell_also_below_wide_characters() -> None:
    found = [listed("mend the build"), listed("漢字の題", turns=12), listed("x", here=False, turns=None)]
    lines = drawn(found, everything=True, columns=None)
    assert lines[0].split() == ["ID", "LAST", "WRITTEN", "TURNS", "TITLE", "WORKSPACE"]
    title, where = lines[0].index("TITLE"), lines[0].index("WORKSPACE")
    assert [line[title] for line in lines] == ["T", "m", "漢", "x"]
    assert lines[3][where:] == "/home/me/src"
    assert [line[title - 3] for line in lines[1:]] == ["3", "2", "?"]


def test_on_a_terminal_a_row_is_one_line() -> None:
    lines = drawn([listed("漢字" * 100), listed("a" * 200)], everything=False, columns=70)
    assert all(cells(line) <= 70 for line in lines)
    assert lines[2].endswith("a…")
    assert "a" * 200 in drawn([listed("a" * 200)], everything=False, columns=None)[1]


def test_an_accent_of_its_own_takes_no_cell() -> None:
    (_, row) = drawn([listed("e\u0301" * 100)], everything=False, columns=60)
    assert cells(row) == 59  # the last cell stays free
    assert row.endswith("e\u0301…")


def test_what_is_not_shown_is_counted() -> None:
    lines = drawn([listed("x", here=False)], everything=False, columns=80)
    assert lines == [
        "no conversation of this project yet; start one with: agent",
        "1 of other projects: agent sessions --all",
    ]
    assert drawn([], everything=True, columns=80) == lines[:1]


def test_a_title_can_neither_break_the_table_nor_control_the_terminal() -> None:
    (_, row) = drawn([listed("a\nb\x1b[31m")], everything=False, columns=80)
    assert row.endswith("a^Jb^[[31m")
