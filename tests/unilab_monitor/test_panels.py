"""Lines of every panel from a view. No Textual application."""

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_core.telemetry.records import Note
from unilab_monitor.glyphs import ASCII, UNICODE
from unilab_monitor.line import width_of
from unilab_monitor.palette import Palette
from unilab_monitor.panels.clocks import both_lines, clock_frame, learner_lines, timing_lines
from unilab_monitor.panels.frame import lower_edge, upper_edge
from unilab_monitor.panels.header import header_frame, header_lines
from unilab_monitor.panels.metrics import metrics_lines
from unilab_monitor.panels.rewards import rewards_lines
from unilab_monitor.panels.status import status_lines
from unilab_monitor.panels.system import system_lines
from unilab_monitor.timing import collector_rows
from unilab_monitor.view import EndView, LearnerView, ProcessView

T = 100 * SECOND

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "line\nbreak\r\ttab",
    "[bold red]markup[/bold red]",
    "[link=javascript:x]l[/]",
    "‮evil‬",
    "zero\u200bwidth",
    "nul\x00byte",
    "\ud800surrogate",
    "狗" * 200,
    "e\u0301" * 100,
    "x" * 5000,
]


def view_of(**changes):
    run = changes.pop("run", {})
    learner = [run_info(trainable_ns=T - 61 * SECOND, **run), iteration(T, 412, **changes)]
    return fold(learner=learner, collector=[collector(T, 412)], now_ns=T)


def texts(lines):
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def style_of(lines, wanted):
    return next(style for line in lines for text, style in line if text.strip() == wanted)


def processes(**changes):
    """Launcher, collector and, with the changes, learner."""
    learner = {"role": "learner", "pid": 3, "phase": "training/learner_update", **changes}
    collecting = {"role": "collector", "pid": 2, "phase": "training/learner_action_wait"}
    return tuple(
        ProcessView(**{"rank": 0, "awaits": None, "age_s": 0.1, **row})
        for row in (
            {"role": "launcher", "pid": 1, "phase": "training/supervise"},
            {**collecting, "awaits": "learner"},
            learner,
        )
    )


def test_the_header_names_the_run_and_gives_six_figures():
    view = view_of()
    lines = header_lines(view, 116, UNICODE, progress=False)
    assert texts(lines) == [
        "Elapsed 1m01s │ ETA 11m19s │ Ep Len 213 │ Steps/s 3,137 │ Rows/s 50,196 │ Avg 2s (n=1)"
    ]
    frame = header_frame(view, UNICODE)
    top = "".join(text for text, _ in upper_edge(frame, 80, UNICODE))
    assert top.startswith("╭─ SAC · go2_joystick_flat · mujoco · CPU ─")
    assert top.endswith("─ iteration 412/5,000 ─╮")
    assert len(top) == 80


def test_the_header_says_gpus_where_the_learner_has_some():
    frame = header_frame(view_of(run={"device": "cuda:0", "num_gpus": 2}), UNICODE)
    assert "GPUs 2" in "".join(text for text, _ in frame.title)


def test_warm_up_is_shown_as_such_and_the_clock_does_not_run():
    view = fold(learner=[run_info(trainable_ns=None), iteration(T, 0, status="Warm-up")], now_ns=T)
    (line,) = texts(header_lines(view, 160, UNICODE, progress=False))
    assert line.startswith("Elapsed - │ ETA - │")
    assert "● Warm-up" in line


def test_the_end_is_shown_with_its_reason_and_code():
    end = EndView(reason="learner 3 died: SIGKILL", exit_code=10, ended_utc="2026-11-29T22:50:00")
    view = fold(learner=[run_info(), iteration(T, 412)], now_ns=T, end=end)
    lines = header_lines(view, 116, UNICODE, progress=False)
    assert texts(lines)[1] == "● ended  │ learner 3 died: SIGKILL │ exit 10 │ 2026-11-29T22:50:00"
    assert style_of(lines, "exit 10") == "bad"


def test_progress_is_the_share_of_the_iterations():
    lines = header_lines(view_of(), 105, ASCII, progress=True)
    assert texts(lines)[-1] == "=" * 8 + "-" * 92 + "   8%"


def test_a_long_directory_gives_way_to_the_name_and_keeps_its_end():
    run_dir = "/a/very/long/path/" + "x" * 90 + "/end"
    frame = header_frame(view_of(run={"run_dir": run_dir}), UNICODE)
    bottom = "".join(text for text, _ in lower_edge(frame, 60, UNICODE))
    assert len(bottom) == 60
    assert bottom.startswith("╰─ go2-1 ─")
    assert bottom.endswith("x/end ─╯")


def test_metrics_come_in_groups_and_large_losses_are_red():
    lines = metrics_lines(view_of(), 40, UNICODE)
    shown = texts(lines)
    assert [line[:22].rstrip() for line in shown] == [
        "Entropy",
        "Actor",
        "Critic",
        "Temperature",
        "Alpha",
        "  Actor Grad",
        "  Critic Grad",
        "  Target Q Max",
        "  Target Q Min",
        "  Ingress Depth",
        "  Ingress Occupancy",
        "  Ingress High Water",
        "  Ingress Backpressure",
        "  Ingress Drops",
    ]
    assert style_of(lines, "12.400") == "bad"
    assert style_of(lines, "31.700") == "value"  # not a loss
    assert shown[9].endswith(" 2")


def test_metrics_take_two_columns_where_they_fit():
    assert len(metrics_lines(view_of(), 76, UNICODE)) == 7
    assert len(metrics_lines(view_of(), 50, UNICODE)) == 14


def test_a_metric_that_is_not_a_number_is_red_and_an_unknown_one_is_shown():
    view = view_of(metrics={"Loss/critic": float("nan"), "Custom/thing": 0.5})
    lines = metrics_lines(view, 40, UNICODE)
    assert style_of(lines, "nan") == "bad strong"
    assert texts(lines)[-1].split() == ["Custom/thing", "0.5000"]


def test_metrics_keep_their_places_whatever_arrives_first():
    # The actor is updated less often than the critic: its figures may be missing from a sample.
    first = iteration(T, 1, metrics={"Train/target_q_max": 1.0, "Loss/critic": 2.0})
    second = iteration(T, 2, metrics={"Train/actor_gradient_norm": 3.0, "Loss/actor": 4.0})
    lines = texts(metrics_lines(fold(learner=[first, second], now_ns=T), 40, UNICODE))
    assert [line.rpartition(" ")[0].strip() for line in lines] == [
        "Actor",
        "Critic",
        "Actor Grad",
        "Target Q Max",
    ]


def test_a_process_that_imports_is_not_called_silent():
    importing = processes(age_s=9.0, phase="startup/begin")
    text = "".join(texts(status_lines(fold(processes=importing, now_ns=T), 160, UNICODE)))
    assert "silent" not in text
    stuck = processes(age_s=31.0, phase="startup/begin")
    text = "".join(texts(status_lines(fold(processes=stuck, now_ns=T), 160, UNICODE)))
    assert "silent 31.0 s" in text


def test_a_stop_by_signal_is_no_alarm():
    view = fold(now_ns=T, end=EndView(reason="stopped by SIGINT", exit_code=130))
    lines = header_lines(view, 116, UNICODE, progress=False)
    assert style_of(lines, "exit 130") == "value"


def test_rewards_have_signs_and_colours_and_the_peak_its_decimals():
    view = view_of(rewards={"reward/a": 0.25, "reward/b": -0.5, "reward/c": 0.0}, reward_mean=4.2)
    lines = rewards_lines(view, 60, UNICODE, peak_decimals=2)
    assert texts(lines)[0] == "Mean 4.200    peak 4.20"
    assert texts(lines)[1:4] == ["a   +0.2500", "b   -0.5000", "c   +0.0000"]
    assert [style_of(lines, text) for text in ("+0.2500", "-0.5000", "+0.0000")] == [
        "good",
        "bad",
        "dim",
    ]
    assert texts(rewards_lines(view, 60, UNICODE, peak_decimals=3))[0].endswith("peak 4.200")
    assert texts(lines)[-1] == "Terminations  tilt 137  time_out 4"


def test_a_rising_reward_has_an_arrow_and_a_course():
    reports = [iteration(T + k * SECOND, k, reward_mean=float(k)) for k in range(30)]
    view = fold(learner=[run_info(), *reports], now_ns=T + 30 * SECOND)
    (summary, *_) = texts(rewards_lines(view, 70, UNICODE, peak_decimals=3))
    assert "▲" in summary
    assert summary.endswith("█")
    assert "^" in texts(rewards_lines(view, 70, ASCII, peak_decimals=3))[0]


def test_timing_rows_have_ms_with_one_decimal_and_whole_percent():
    lines = texts(learner_lines(view_of(), 40, UNICODE))
    assert lines[0] == "Collector Wait            0.1 ms    0%"
    assert lines[5] == "Learning                 18.0 ms   88%"
    assert lines[-1] == "Iter Wall                20.4 ms  100%"


def test_details_hang_in_a_tree_that_its_last_child_closes():
    lines = texts(timing_lines(collector_rows(view_of()), 40, UNICODE))
    assert "      Backend Step ─┤     2.6 ms   13%" in [line[:38] for line in lines]
    assert "      Update State ─┘     0.6 ms    3%" in [line[:38] for line in lines]
    ascii_lines = "\n".join(texts(timing_lines(collector_rows(view_of()), 40, ASCII)))
    assert "Backend Step -+" in ascii_lines
    assert "Update State -'" in ascii_lines


def test_a_stalled_source_is_marked_beside_its_column_with_its_own_age():
    frame = clock_frame("Learner", LearnerView(age_s=4.23, stalled=True))
    assert frame.title_right[0][0] == "stalled 4.2 s"
    assert clock_frame("Learner", LearnerView(age_s=4.23)).title_right == ()
    view = fold(
        learner=[run_info(), iteration(T, 1)],
        collector=[collector(T + k * SECOND // 50, k) for k in range(200)],
        now_ns=T + 4 * SECOND,
    )
    headings = [line for line in texts(both_lines(view, 70, UNICODE)) if "(" in line]
    assert headings == ["Learner (Iter Wall)  stalled 4.0 s", "Collector (own clock)"]


def test_a_broken_timing_contract_is_an_alarm_in_the_column_and_in_the_diagnosis():
    view = view_of(wall_ms=19.0)
    assert texts(learner_lines(view, 40, UNICODE))[-1] == "▲ accounted 105.3% of Iter Wall"
    assert "105.3 %" in "".join(texts(status_lines(view, 120, UNICODE)))
    assert "contract" in texts(status_lines(view, 120, UNICODE))[0]


def test_the_system_card_has_its_five_figures():
    lines = texts(system_lines(view_of(), 40, UNICODE))
    assert [line.split()[-1] for line in lines[:5]] == ["26,368", "2.0%", "64", "1,024", "off"]


def test_the_diagnosis_is_one_line_where_it_fits_and_names_what_to_check():
    (line, *_) = texts(status_lines(view_of(), 260, UNICODE))
    assert line.startswith("Diagnosis  ● Learner Action Wait 75% of the cycle")
    assert "→ Learning, updates per step" in line
    narrow = texts(status_lines(view_of(), 70, UNICODE))
    assert len([text for text in narrow if text.strip().startswith("→")]) == 1
    assert len(texts(status_lines(view_of(), 70, UNICODE, short=True))) == 1


def test_processes_tell_phase_pid_and_whom_they_wait_for():
    view = fold(processes=processes(), now_ns=T)
    (line,) = [line for line in texts(status_lines(view, 140, UNICODE)) if "Processes" in line]
    assert line == (
        "Processes  ● launcher 1 supervise   "
        "● collector 2 learner_action_wait (awaits learner)   ● learner 3 learner_update"
    )


def test_a_stopped_and_a_silent_process_are_told_apart():
    stopped = fold(processes=processes(age_s=5.0, os_state="T"), now_ns=T)
    assert "stopped (state T)" in "".join(texts(status_lines(stopped, 160, UNICODE)))
    silent = fold(processes=processes(age_s=5.0, os_state="R"), now_ns=T)
    assert "silent 5.0 s" in "".join(texts(status_lines(silent, 160, UNICODE)))


def test_the_newest_event_is_shown_with_its_age():
    notes = [Note(t_ns=T, text="old"), Note(t_ns=T, text="checkpoint saved")]
    view = fold(learner=notes, now_ns=T + 75 * SECOND)
    assert texts(status_lines(view, 100, UNICODE))[-1] == "Event      1m15s ago  checkpoint saved"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["utf-8", "ascii"])
@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_is_literal_and_harmless_in_every_panel(text, glyphs):
    view = fold(
        learner=[
            run_info(job=text, task=text, sim=text, run_dir=text, cuda_mps=text),
            iteration(
                T,
                1,
                status=text,
                metrics={text: 1.0, "Loss/" + text: 2.0},
                rewards={"reward/" + text: 1.0},
            ),
            Note(t_ns=T, text=text, level="warning"),
        ],
        collector=[collector(T, 1, terminations_total={"Episode_Termination/" + text: 1.0})],
        processes=processes(),
        now_ns=T,
        end=EndView(reason=text, exit_code=1, ended_utc=text),
    )
    width = 76
    edges = [edge(header_frame(view, glyphs), width, glyphs) for edge in (upper_edge, lower_edge)]
    assert [width_of(edge) for edge in edges] == [width, width]
    lines = [
        *edges,
        *header_lines(view, width, glyphs, progress=True),
        *metrics_lines(view, width, glyphs),
        *rewards_lines(view, width, glyphs, peak_decimals=3),
        *both_lines(view, width, glyphs),
        *system_lines(view, width, glyphs),
        *status_lines(view, width, glyphs),
    ]
    styles = Palette().on("ground")
    for part, style in (span for line in lines for span in line):
        assert style in styles
        assert not any(
            ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000
            for char in part
        )
        assert not set(part) & set("‪‫‬‭‮⁦⁧⁨⁩\u200b\u2028\u2029")
