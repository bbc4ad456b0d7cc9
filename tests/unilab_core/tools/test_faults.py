"""The sweep's plan, its table and the round plan of the nemesis; no processes."""

import json

import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.run.faults import PHASES, require_occurs
from unilab_core.tools.faults.arguments import ALGOS
from unilab_core.tools.faults.cases import quick, sweep
from unilab_core.tools.faults.cycles import Sample, slopes
from unilab_core.tools.faults.nemesis import ALONE, expected_codes, plan_round
from unilab_core.tools.faults.sweep import ROWS, markdown, merge, table_rows
from unilab_core.tools.faults.watch import Point


def point(row="F01", **more):
    return Point(**{"name": "sac x", "row": row, "role": "collector", "phase": "P4a",
                    "action": "kill", **more})  # fmt: skip


def test_the_sweep_has_more_than_300_points_each_possible_and_named_once():
    cases = sweep(ALGOS, seed=3)
    assert len(cases) >= 300
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        require_occurs(case.fault, case.algo)
        assert case.row in ROWS


def test_every_role_is_killed_in_every_phase_that_it_meets():
    for algo in ALGOS:
        killed = {
            (case.fault.role, case.fault.phase)
            for case in sweep([algo], seed=0)
            if case.fault.action == "kill"
        }
        assert {phase for role, phase in killed if role == "learner"} >= set(PHASES) - {
            "P4c",
            "P4e",
        }
        assert {phase for role, phase in killed if role == "launcher"} >= {"P0", "P1", "P5", "P6"}


def test_the_same_seed_gives_the_same_sweep():
    assert sweep(ALGOS, 7) == sweep(ALGOS, 7)
    assert sweep(ALGOS, 7) != sweep(ALGOS, 8)


def test_the_quick_sweep_is_short_and_covers_most_rows():
    cases = quick(ALGOS, seed=0)
    assert len(cases) <= 12
    assert {"F01", "F02", "F04", "F09", "F10", "F16", "F18", "F24", "F25"} <= {
        case.row for case in cases
    }


def test_a_row_of_the_table_has_median_worst_and_what_went_wrong():
    points = [
        point(name="a", seen_s=0.1, ended_s=1.0),
        point(name="b", seen_s=0.3, ended_s=2.0),
        point(name="c", seen_s=0.2, ended_s=4.0, violations=["exit: got 1, expected 10"]),
    ]
    (row,) = table_rows(points)
    assert (row["seen_median_s"], row["seen_worst_s"]) == (0.2, 0.3)
    assert (row["ended_median_s"], row["ended_worst_s"]) == (2.0, 4.0)
    assert (row["points"], row["wrong"]) == (3, 1)
    assert "| F01 | collector killed | 0.5 | 0.2 | 0.3 | 5.0 | 2.0 | 4.0 | 3 | 1 |" in markdown(
        [row]
    )


def test_parts_are_merged_and_a_repeated_case_replaces_the_first(tmp_path):
    def part(name, points):
        path = tmp_path / name
        path.write_text(
            json.dumps({"bench": "faults", "settings": {}, "points": [p.record() for p in points]})
        )
        return path

    first = part("1.json", [point(name="a", violations=["hang: x"]), point(name="b")])
    again = part("2.json", [point(name="a")])
    out, table = tmp_path / "all.json", tmp_path / "all.md"
    report = merge([first, again], out=out, table=table)
    assert report.ok
    assert report.rows[0]["points"] == 2
    assert len(json.loads(out.read_text())["points"]) == 2
    assert table.read_text().startswith("| row |")
    assert not merge([first], out=None, table=None).ok
    with pytest.raises(ConfigError, match="not a result of unilab-bench faults"):
        merge([tmp_path / "none.json"], out=None, table=None)


def test_rounds_of_the_nemesis_follow_from_seed_and_number():
    rounds = [plan_round(5, index, ALGOS) for index in range(200)]
    assert rounds == [plan_round(5, index, ALGOS) for index in range(200)]
    assert {one.victim for one in rounds} == {"launcher", "collector", "learner", "everybody"}
    assert {one.blow for one in rounds} == {"kill", "segv", "stop", "pause"}
    # A launcher that is stopped for ever is nobody's to find.
    assert not [o for o in rounds if o.blow == "stop" and o.victim in ("launcher", "everybody")]
    assert all(expected_codes(one) for one in rounds)


def test_a_launcher_that_is_still_importing_may_die_of_the_signal_that_asks_it_to_end():
    paused = next(one for one in map(_first_plan, range(200)) if one.blow == "pause")
    paused.phase = "3 processes"
    assert expected_codes(paused) == {143}
    paused.phase = ALONE
    assert expected_codes(paused) == {143, -15}


def _first_plan(index):
    return plan_round(5, index, ALGOS)


def test_what_grows_with_every_cycle_is_not_flat():
    def sample(cycle, **more):
        values = {"fds": 7, "threads": 2, "rss_kib": 1000, "mappings": 0, "shm_names": 0,
                  "children": 0, **more}  # fmt: skip
        return Sample(cycle=cycle, exit_code=0, wall_s=1.0, **values)

    flat = {row["quantity"]: row["flat"] for row in slopes([sample(k) for k in range(20)])}
    assert all(flat.values())
    leaking = [sample(k, fds=7 + k // 4, rss_kib=1000 + 50 * k) for k in range(20)]
    flat = {row["quantity"]: row["flat"] for row in slopes(leaking)}
    assert not flat["fds"]
    assert not flat["rss_kib"]
    assert flat["threads"]
    one_step = [sample(k, rss_kib=1000 + 500 * (k > 7)) for k in range(20)]
    (memory,) = [row for row in slopes(one_step) if row["quantity"] == "rss_kib"]
    assert memory["slope_per_cycle"] > 8.0
    assert memory["flat"]
