"""The plot of walk results: read from the JSON lines, refused when they are something else."""

import json

import pytest

from unilab_core.tools.bench.walk_plot import draw, read_rows

CURVE = [
    {"time_s": 10.0, "error_vel_xy": 0.6, "error_vel_yaw": 0.5},
    {"time_s": 20.0, "error_vel_xy": 0.1, "error_vel_yaw": 0.1},
]
ROW = {"algo": "ppo", "seed": 1, "time_to_success_s": 20.0, "curve": CURVE}


def test_rows_of_several_files_are_drawn_into_one_picture(tmp_path):
    for name in ("a", "b"):
        text = "a line of the launcher\n" + json.dumps({"bench": "walk", "rows": [ROW]})
        (tmp_path / name).write_text(text)
    rows = read_rows([tmp_path / "a", tmp_path / "b"])
    assert [row["seed"] for row in rows] == [1, 1]
    draw(rows, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["", "not json", '{"bench": "slot", "rows": []}', "[1]"])
def test_another_file_is_refused_by_name(tmp_path, text):
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError, match="unilab-bench walk"):
        read_rows([tmp_path / "a"])
