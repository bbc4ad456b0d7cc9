"""A dump made by the guard around the real task, shown by `unilab-eval --replay-nan`."""

import json

import numpy as np
import pytest

from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.nan_dumps import NanDumps
from unilab_core.config.compose import compose
from unilab_core.config.training import NanGuardConfig
from unilab_core.envs import make_env
from unilab_core.run.failures import NonFiniteError
from unilab_core.run.nan_dump import read_nan_dump
from unilab_core.tools import eval_cli
from unilab_core.tools.replay_nan import recompute_last_step


@pytest.fixture(scope="module")
def config():
    settings = ["algo.num_envs=3", "env.domain_randomization=false"]
    return compose("ppo", "go2_joystick_flat", "mujoco", settings, environ={"PATH": ""}).env


def guarded(folder, config):
    """Three robots, the guard around them after its reset, and zero actions."""
    inner = make_env(
        "go2_joystick_flat", "mujoco", config, num_envs=3, seed=1, num_threads=1,
        spread_episodes=False,
    )  # fmt: skip
    dumps = NanDumps(folder, spec=inner.spec, env_config=config.to_dict(), max_envs=2)
    env = GuardedEnv(inner, NanGuardConfig(buffer_size=5), dumps=dumps)
    env.reset()
    return inner, env, np.zeros((3, inner.spec.action_width), np.float32)


def make_dump(folder, config, spoil, steps=8):
    """Zero actions until `spoil(inner, step)` does its work; the path of the one dump."""
    inner, env, actions = guarded(folder, config)
    original = inner.rewards.compute

    def compute(view, unstable, reward):
        original(view, unstable, reward)
        if env._step == steps - 1:
            spoil(inner, reward)

    inner.rewards.compute = compute
    error = None
    try:
        for _ in range(steps):
            env.step(actions)
    except NonFiniteError as caught:
        error = caught
    finally:
        env.close()
    (path,) = folder.glob("*.npz")
    return path, error


def spoil_reward(_inner, reward):
    reward[1] = np.nan


def test_a_bad_reward_is_shown_with_the_steps_before_it(tmp_path, config, capsys):
    path, error = make_dump(tmp_path, config, spoil_reward)
    assert str(error).startswith("reward NaN env 1 step 7; last states: ")
    assert eval_cli.main(["--replay-nan", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("reward NaN env 1 step 7 (go2_joystick_flat; 5 steps")
    assert out[1] == "first value that is not finite: reward in step 7"
    assert [line.split()[0] for line in out[4:9]] == ["3", "4", "5", "6", "7"]
    assert out[8].split()[1] == "nan"
    assert "computed again from its state: finite, at most" in out[9]


def test_the_last_step_can_be_computed_again_from_the_dump(tmp_path, config):
    path, _ = make_dump(tmp_path, config, spoil_reward)
    again = recompute_last_step(read_nan_dump(path))
    assert again["first_nonfinite"] is None
    # Close, not equal: the solver of few iterations starts cold here and warm in the run.
    assert again["max_difference"] < 0.01


def test_physics_that_breaks_is_dumped_with_the_state_that_broke(tmp_path, config, capsys):
    inner, env, actions = guarded(tmp_path, config)
    for step in range(4):
        if step == 3:
            inner.backend.qvel[2, 0] = 1e30
        result = env.step(actions)
    env.close()
    assert result.terminated.tolist() == [False, False, True]
    (path,) = tmp_path.glob("nan_00000003_physics.npz")
    assert eval_cli.main(["--replay-nan", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["env"], report["step"]) == ("physics", 2, 3)
    assert report["rows"][-1]["max|qvel|"] == 1e30


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("absent.npz", 6, "no such file"), ("foreign.npz", 5, "not a dump of the NaN guard")],
)
def test_what_is_no_dump_is_named(tmp_path, capsys, name, code, message):
    (tmp_path / "foreign.npz").write_bytes(b"PK\x03\x04nothing")
    assert eval_cli.main(["--replay-nan", str(tmp_path / name)]) == code
    assert message in capsys.readouterr().err


def test_a_dump_and_a_policy_at_once_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        eval_cli.main([str(tmp_path), "--replay-nan", "x.npz"])
    assert caught.value.code == 2
    assert "--replay-nan shows a dump" in capsys.readouterr().err
