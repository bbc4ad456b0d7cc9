from unilab_monitor.glyphs import ASCII, UNICODE, glyphs_for
from unilab_monitor.line import bar, clip, columns, cut_left, fit, flow, pad, sparkline, width_of

SEP = (" | ", "frame")


def cell(text):
    return ((text, "value"),)


def text(line):
    return "".join(part for part, _ in line)


def test_fit_gives_exactly_the_width_also_for_wide_characters():
    assert fit("abc", 5, UNICODE) == "abc  "
    assert fit("abcdef", 4, UNICODE) == "abc…"
    assert fit("狗狗狗", 6, UNICODE) == "狗狗狗"
    assert fit("狗狗狗", 5, UNICODE) == "狗狗…"
    assert fit("abc", 0, UNICODE) == ""


def test_a_line_is_cut_with_one_ellipsis_in_the_style_of_what_was_cut():
    line = (("abc", "label"), ("defgh", "value"), ("ijk", "bad"))
    assert clip(line, 11, UNICODE) == line
    assert clip(line, 6, UNICODE) == (("abc", "label"), ("de…", "value"))
    assert width_of(clip(line, 6, UNICODE)) == 6


def test_a_path_keeps_its_end():
    assert text(cut_left(cell("/logs/sac/go2/run"), 8, UNICODE)) == "…go2/run"


def test_cells_flow_into_as_few_lines_as_fit():
    cells = [cell("aaaa"), cell("bbbb"), cell("cccc")]
    assert [text(line) for line in flow(cells, 18, SEP)] == ["aaaa | bbbb | cccc"]
    assert [text(line) for line in flow(cells, 17, SEP)] == ["aaaa | bbbb", "cccc"]
    assert [text(line) for line in flow(cells, 3, SEP)] == ["aaaa", "bbbb", "cccc"]
    assert flow([], 10, SEP) == []


def test_columns_are_dealt_top_to_bottom_and_have_equal_widths():
    lines = [cell(letter) for letter in "abcde"]
    rows = [text(row) for row in columns(lines, count=2, width=11, gap=3)]
    assert rows == ["a      d   ", "b      e   ", "c          "]


def test_pad_fills_up_and_never_cuts():
    assert text(pad(cell("ab"), 4)) == "ab  "
    assert text(pad(cell("abcdef"), 4)) == "abcdef"


def test_a_sparkline_spans_from_the_least_to_the_largest():
    assert sparkline([0.0, 3.5, 7.0], 10, UNICODE) == "▁▅█"
    assert sparkline([1.0, 2.0, 3.0], 2, UNICODE) == "▁█"
    assert sparkline([5.0, 5.0], 10, UNICODE) == "▄▄"
    assert sparkline([5.0], 10, UNICODE) == ""
    assert sparkline([0.0, float("nan"), 7.0], 10, UNICODE) == "▁█"


def test_a_bar_ends_in_eighths_of_a_cell():
    assert bar(1.0, 4, UNICODE) == "████"
    assert bar(0.5, 4, UNICODE) == "██"
    assert bar(1 / 32, 4, UNICODE) == "▏"
    assert bar(0.0, 4, UNICODE) == ""
    assert bar(2.0, 4, UNICODE) == "████"
    assert bar(0.5, 4, ASCII) == "##"


def test_ascii_glyphs_are_ascii_and_both_sets_are_complete():
    for name in ASCII.__slots__:
        assert getattr(ASCII, name).isascii()
        if name not in ("bar_partial", "arrow"):
            assert len(getattr(ASCII, name)) == len(getattr(UNICODE, name)), name


def test_the_console_decides_between_utf_8_and_ascii():
    def chosen(encoding, **environ):
        return glyphs_for(encoding=encoding, environ=environ)

    assert chosen("utf-8") is UNICODE
    assert chosen("UTF8", LANG="de_DE.UTF-8") is UNICODE
    assert chosen("iso8859-1", LANG="de_DE.UTF-8") is ASCII
    assert chosen("ascii") is ASCII
    assert chosen(None) is ASCII
    # Python says UTF-8 in the C locale; the terminal of whoever chose C may not know it.
    assert chosen("utf-8", LC_ALL="C") is ASCII
    assert chosen("utf-8", LC_ALL="C.UTF-8", LANG="C") is UNICODE
    assert chosen("utf-8", LC_CTYPE="C.UTF-8", LANG="C") is UNICODE
