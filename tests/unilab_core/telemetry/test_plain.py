"""Plain output: number and duration formats, the progress line, and hostile texts."""

import math
import unicodedata

import pytest

from unilab_core.telemetry.plain import (
    elapsed_s,
    eta_s,
    format_count,
    format_duration,
    format_number,
    note_line,
    progress_line,
    sanitize,
)
from unilab_core.telemetry.records import IterationReport, Note, RunInfo

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "0"),
        (1234567.0, "1.23e+06"),
        (-1e6, "-1.00e+06"),
        (999999.0, "999999.0"),
        (100.0, "100.0"),
        (-123.456, "-123.5"),
        (99.9996, "100.000"),
        (1.0, "1.000"),
        (3.14159, "3.142"),
        (0.5, "0.5000"),
        (0.001, "0.0010"),
        (0.0009, "9.00e-04"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (None, "-"),
    ],
)
def test_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (61.2, "1m01s"),
        (3599, "59m59s"),
        (3600, "1h00m00s"),
        (90061, "25h01m01s"),
        (-3, "0s"),
        (None, "-"),
        (math.inf, "-"),
    ],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(6400.4, "6,400"), (0, "0"), (None, "-"), (math.nan, "-")]
)
def test_counts(value, text):
    assert format_count(value) == text


def run_info(**changes):
    fields = {
        "job": "j",
        "algo": "sac",
        "task": "t",
        "sim": "mujoco",
        "run_dir": "/r",
        "device": "cpu",
        "num_gpus": 0,
        "max_iterations": 1000,
        "num_envs": 64,
        "batch_per_rank": 256,
        **changes,
    }
    return RunInfo(**fields)


def test_elapsed_starts_at_the_first_trainable_moment():
    assert elapsed_s(run_info(), now_ns=50 * SECOND) is None
    assert elapsed_s(run_info(trainable_ns=20 * SECOND), now_ns=50 * SECOND) == 30.0


def test_eta_extends_the_pace_of_this_session():
    run = run_info(trainable_ns=0)
    assert eta_s(run, 250, now_ns=10 * SECOND) == 30.0
    assert eta_s(run, 0, now_ns=10 * SECOND) is None
    resumed = run_info(trainable_ns=0, first_iteration=500)
    assert eta_s(resumed, 600, now_ns=10 * SECOND) == 40.0
    assert eta_s(resumed, 500, now_ns=10 * SECOND) is None


def test_the_progress_line_of_an_iteration():
    report = IterationReport(
        t_ns=10 * SECOND,
        iteration=250,
        env_steps=16000,
        wall_ms=40.0,
        reward_mean=4.2,
        episode_length=480.0,
        steps_per_s=1600.0,
        rows_per_s=51200.0,
    )
    assert progress_line(report, run_info(trainable_ns=0)) == (
        "iteration 250/1000 | 10s | ETA 30s | reward 4.200 | ep len 480.0"
        " | steps/s 1,600 | rows/s 51,200 | wall 40.000 ms"
    )


def test_the_progress_line_of_the_warm_up():
    report = IterationReport(t_ns=1, iteration=0, env_steps=640, buffer=640, status="Warm-up")
    assert progress_line(report, run_info()) == "Warm-up | env steps 640 | buffer 640"


def test_a_status_other_than_training_ends_the_line():
    report = IterationReport(t_ns=1, iteration=3, env_steps=1, status="Saving")
    assert progress_line(report, run_info()).endswith(" | Saving")


def test_a_note_names_its_level_unless_it_is_news():
    assert note_line(Note(t_ns=1, text="saved")) == "saved"
    assert note_line(Note(t_ns=1, text="a\x1b[2Jb", level="error")) == r"error: a\x1b[2Jb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text_1", "plain text_1"),
        ("Größe 速度", "Größe 速度"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f", r"\x7f"),
        ("\x00", r"\x00"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\u2028", r"\u2028"),
        ("\ufeff", r"\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_foreign_text_is_shown_literally(text, shown):
    assert sanitize(text) == shown


def test_no_control_character_gets_through():
    everything = "".join(map(chr, range(0x3000)))
    shown = sanitize(everything, max_chars=10**6)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_long_text_is_cut_with_an_ellipsis():
    assert sanitize("x" * 10_000_000, max_chars=10) == "x" * 9 + "…"
    assert sanitize("x" * 10, max_chars=10) == "x" * 10
    assert len(sanitize("\x1b" * 10, max_chars=10)) == 10
