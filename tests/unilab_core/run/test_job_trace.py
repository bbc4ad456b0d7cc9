"""Where a job's trace goes and how its iterations become steps."""

import json
import os

import pytest

from unilab_core.config.compose import compose
from unilab_core.run.job_trace import (
    ECHO_VARIABLE,
    open_trace,
    rhythm_of,
    trace_counts,
    trace_facts,
)
from unilab_core.telemetry.rl_trace.formats import LineStyle
from unilab_ipc.registry import JobFolder

TASK = "go2_joystick_flat"


def config(algo, *overrides):
    return compose(algo, TASK, overrides=list(overrides), environ={"PATH": ""})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(runtime))
    claimed = JobFolder.claim("j", {})
    yield claimed
    claimed.release({"state": "ended"})


def opened(settings, folder, run_dir, environ):
    return open_trace(
        settings, folder=folder, run_id="abc", run_dir=run_dir, role="collector", environ=environ
    )


def test_a_step_is_a_rollout_of_ppo_and_appo(folder):
    ppo = rhythm_of(config("ppo", "algo.num_steps_per_env=24", "algo.max_iterations=7"))
    assert (ppo.style, ppo.segment_ticks, ppo.total_steps) == (LineStyle.COLOCATE, 24, 7)
    appo = rhythm_of(config("appo", "algo.steps_per_env=16", "algo.max_iterations=7"))
    assert (appo.style, appo.segment_ticks, appo.total_steps) == (LineStyle.DISAGG, 16, 7)


def test_an_off_policy_step_is_as_long_as_a_segment():
    settings = ["training.env_steps_per_sync=4", "algo.max_iterations=100"]
    sac = rhythm_of(config("sac", *settings))
    assert (sac.style, sac.segment_ticks, sac.iterations_per_step) == (LineStyle.DISAGG, 64, 16)
    assert sac.total_steps == 7
    assert [sac.step_of(i) for i in (0, 15, 16, 99)] == [1, 1, 2, 7]
    assert [sac.closes_step(i) for i in (1, 16, 99, 100)] == [False, True, False, True]


def test_a_segment_fits_into_a_small_replay():
    assert rhythm_of(config("sac", "algo.replay_buffer_n=40")).segment_ticks == 10


def test_nothing_is_traced_unless_asked_for(folder, tmp_path):
    trace = opened(config("sac"), folder, tmp_path, {})
    assert not trace.enabled
    assert trace.traced_envs == ()
    trace.emitter.step_header(1)
    trace.close()
    assert trace_counts(folder) == {}
    assert trace_facts(config("sac"), tmp_path, {}) is None
    assert list(tmp_path.glob("*")) == [tmp_path / "runtime"]


def test_the_key_and_the_variable_name_the_root_and_k(folder, tmp_path):
    settings = config("sac", "training.rl_trace=true", "training.rl_trace_every=8",
                      "algo.num_envs=20")  # fmt: skip
    facts = trace_facts(settings, tmp_path, {})
    assert facts["root"] == str(tmp_path / "rl_trace")
    assert facts["every"] == 8
    trace = opened(settings, folder, tmp_path, {})
    assert trace.traced_envs == (0, 8, 16)
    assert trace.uid(3) == "abc.0-3"
    elsewhere = {"VERL_TRACE_DIR": str(tmp_path / "shared")}
    assert trace_facts(config("sac"), tmp_path, elsewhere)["root"] == str(tmp_path / "shared")
    assert opened(config("sac"), folder, tmp_path, elsewhere).enabled
    trace.close()


def test_lost_lines_are_recorded_in_the_job_folder(folder, tmp_path):
    (tmp_path / "rl_trace").write_text("a file where the root should be")
    trace = opened(config("sac", "training.rl_trace=true"), folder, tmp_path, {})
    trace.note_losses()
    assert trace_counts(folder) == {}
    trace.emitter.step_header(1)
    trace.emitter.flush()
    trace.note_losses()
    assert trace_counts(folder)["collector-0"]["dropped"] == 1
    trace.emitter.step_header(2)
    trace.close()
    counts = trace_counts(folder)["collector-0"]
    assert (counts["dropped"], counts["written"]) == (2, 1)  # written: progress.tsidx has its head
    assert json.dumps(counts)


def test_progress_lines_go_to_the_descriptor_that_was_handed_down(folder, tmp_path):
    printed = tmp_path / "printed"
    number = os.open(printed, os.O_WRONLY | os.O_CREAT, 0o600)  # the trace owns it from here on
    environ = {"VERL_TRACE_DIR": str(tmp_path / "shared"), ECHO_VARIABLE: str(number)}
    trace = opened(config("sac"), folder, tmp_path, environ)
    trace.emitter.total_steps(9)
    trace.close()
    assert printed.read_text() == "Total training steps: 9\n"
