"""The NaN guard around an environment: who is named, what is dropped, what is dumped."""

import numpy as np
import pytest

from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.nan_dumps import MAX_DUMPS, NanDumps
from unilab_core.config.training import NanGuardConfig
from unilab_core.contracts import TIMING_KEYS, EnvSpec, StepResult
from unilab_core.run.failures import NonFiniteError
from unilab_core.run.nan_dump import NanDumpError, read_nan_dump

E, O, C, A = 4, 2, 3, 2  # noqa: E741 - the legend's letters
SPEC = EnvSpec(
    task="counting", sim="none", num_envs=E, obs_width=O, critic_obs_width=C, action_width=A,
    action_low=None, action_high=None, obs_terms=(("left", 1), ("right", 1)),
    critic_obs_terms=(("all", C),), reward_terms=("alive",), termination_terms=("time_out",),
    log_keys=("reward/alive",), ctrl_dt_s=0.02, max_episode_steps=9, backend_device=None,
)  # fmt: skip
ACTIONS = np.full((E, A), 0.5, np.float32)
DROP = NanGuardConfig(policy="drop_episode", max_drop_frac=0.01)


class Scripted:
    """obs = steps in the episode; `wrong[t]` changes the result of step t, or raises."""

    spec = SPEC

    def __init__(self, wrong):
        self.timings_ns = dict.fromkeys(TIMING_KEYS, 0)
        self.wrong, self.total = wrong, 0
        self.age = np.zeros(E)
        self.restarted = []
        self.qpos = np.zeros((E, 2))
        self.result = StepResult(
            obs=np.zeros((E, O), np.float32), critic_obs=np.zeros((E, C), np.float32),
            reward=np.zeros(E, np.float32), terminated=np.zeros(E, bool),
            truncated=np.zeros(E, bool), final_obs=np.zeros((E, O), np.float32),
            final_critic_obs=np.zeros((E, C), np.float32), log={"reward/alive": 1.0},
        )  # fmt: skip

    def reset(self):
        self.age[:] = 0
        return self.observe(slice(None))

    def observe(self, ids):
        self.result.obs[ids] = self.age[ids, None]
        self.result.critic_obs[ids] = self.age[ids, None]
        return self.result

    def step(self, actions):
        self.age += 1
        self.qpos += 1
        result = self.observe(slice(None))
        result.reward[:] = 1.0
        result.terminated[:] = result.truncated[:] = False
        result.unstable = None
        step, self.total = self.total, self.total + 1
        if step in self.wrong:
            self.wrong[step](result)
        return result

    def restart(self, ids):
        self.restarted.append(ids.tolist())
        self.age[ids] = 0
        self.observe(ids)

    def physics(self):
        return {"qpos": self.qpos}


def put(name, env, value):
    def wrong(result):
        getattr(result, name)[env] = value

    return wrong


def run(env, steps):
    env.reset()
    for _ in range(steps):
        result = env.step(ACTIONS)
    return result


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", np.nan, "reward NaN env 3 step 2"),
        ("reward", 1e30, "reward 1e+30 env 3 step 2"),
        ("obs", np.inf, "observation inf env 3 step 2"),
        ("critic_obs", -np.inf, "critic observation -inf env 3 step 2"),
    ],
)
def test_the_first_bad_value_is_named_with_its_owner(name, value, message):
    env = GuardedEnv(Scripted({2: put(name, 3, value)}), NanGuardConfig())
    with pytest.raises(NonFiniteError) as caught:
        run(env, 3)
    assert str(caught.value) == message
    assert caught.value.exit_code == 12


def test_a_final_observation_is_checked_only_where_an_episode_ended():
    def ends(result):
        result.final_critic_obs[1] = np.nan  # not ended: its row means nothing
        result.final_critic_obs[2, 0] = np.nan
        result.truncated[2] = True

    with pytest.raises(NonFiniteError, match=r"^final observation NaN env 2 step 0$"):
        run(GuardedEnv(Scripted({0: ends}), NanGuardConfig()), 1)


def test_a_switched_off_guard_looks_at_nothing():
    env = GuardedEnv(Scripted({0: put("reward", 0, np.nan)}), NanGuardConfig(enabled=False))
    assert np.isnan(run(env, 1).reward[0])


def test_a_dropped_row_is_a_placeholder_that_ends_an_episode_and_starts_another():
    inner = Scripted({3: put("obs", 1, np.nan)})
    said = []
    env = GuardedEnv(inner, DROP, on_drop=said.append)
    result = run(env, 4)
    assert result.dropped.tolist() == [False, True, False, False]
    assert inner.restarted == [[1]]
    assert result.obs[:, 0].tolist() == [4.0, 0.0, 4.0, 4.0]
    assert result.reward.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert (result.terminated[1], result.truncated[1]) == (False, True)
    assert result.final_obs[1].tolist() == [3.0, 3.0]  # what was acted on
    assert result.final_critic_obs[1].tolist() == [3.0] * C
    assert env.dropped == {"observation": 1}
    assert said == ["dropped 1 of 4 transitions: observation NaN env 1 step 3"]
    assert env.step(ACTIONS).dropped is None


def test_broken_physics_is_dropped_too_but_does_not_stop_the_job():
    def breaks(result):
        result.unstable = np.array([False, False, True, False])
        result.terminated[2] = True

    dropping = GuardedEnv(Scripted({0: breaks}), DROP)
    assert run(dropping, 1).dropped.tolist() == [False, False, True, False]
    assert dropping.dropped == {"physics": 1}
    stopping = run(GuardedEnv(Scripted({0: breaks}), NanGuardConfig()), 1)
    assert stopping.dropped is None
    assert stopping.terminated[2]


def test_drops_that_come_too_fast_end_the_job_and_say_why():
    wrong = {step: put("reward", 0, np.nan) for step in range(100)}
    config = NanGuardConfig(policy="drop_episode", max_drop_frac=0.001)  # 4 of 4000 transitions
    env = GuardedEnv(Scripted(wrong), config)
    with pytest.raises(NonFiniteError, match=r"^reward NaN env 0 step 4; 5 transitions dropped"):
        run(env, 100)
    assert env.dropped == {"reward": 5}


def test_an_environment_that_cannot_start_is_an_error_under_either_policy():
    inner = Scripted({0: put("reward", 2, np.nan)})
    inner.restart = lambda ids: put("obs", ids, np.nan)(inner.result)
    with pytest.raises(NonFiniteError, match=r"^first observation NaN env 2 step 0$"):
        run(GuardedEnv(inner, DROP), 1)


@pytest.mark.parametrize("limit", [0, 3])
def test_exceptions_are_survived_as_often_as_allowed(limit):
    def raises(_result):
        raise ZeroDivisionError("the user's term")

    env = GuardedEnv(
        Scripted({2: raises, 4: raises, 6: raises, 8: raises}), DROP, max_exceptions=limit
    )
    env.reset()
    survived = 0
    with pytest.raises(ZeroDivisionError, match="the user's term"):  # noqa: PT012 - counts before
        for _ in range(20):
            result = env.step(ACTIONS)
            if result.dropped is not None:
                survived += 1
                assert result.dropped.all()
                assert result.truncated.all()
                assert result.obs.max() == 0.0
                assert result.reward.max() == 0.0
    assert survived == limit
    assert env.dropped == ({"exception": 3 * E} if limit else {})


@pytest.mark.parametrize("limit", [0, 3])
def test_exceptions_in_reset_count_as_well(limit):
    inner, original = Scripted({}), Scripted.reset
    left = [3]

    def reset():
        if left[0]:
            left[0] -= 1
            raise OSError("no device")
        return original(inner)

    inner.reset = reset
    env = GuardedEnv(inner, DROP, max_exceptions=limit)
    if limit:
        assert env.reset().obs.shape == (E, O)
    else:
        with pytest.raises(OSError, match="no device"):
            env.reset()


# ---- dumps


def dumping(inner, folder, config=None, **changes):
    dumps = NanDumps(folder, spec=SPEC, env_config={"a": 1}, max_envs=2, **changes)
    return GuardedEnv(inner, config or NanGuardConfig(), dumps=dumps)


def test_the_dump_holds_the_last_steps_of_the_offending_environments(tmp_path):
    env = dumping(
        Scripted({6: put("reward", slice(1, 4), np.nan)}), tmp_path, NanGuardConfig(buffer_size=3)
    )
    with pytest.raises(NonFiniteError, match=r"env 1 step 6; last states: .*nan_00000006_reward"):
        run(env, 7)
    (path,) = tmp_path.iterdir()
    dump = read_nan_dump(path)
    assert dump.steps.tolist() == [4, 5, 6]
    assert dump.envs.tolist() == [1, 2]  # max_envs of the three
    assert dump.fields["obs"][:, 0, 0].tolist() == [4.0, 5.0, 6.0]
    assert dump.fields["qpos"][:, 1, 0].tolist() == [4.0, 5.0, 6.0]
    assert dump.fields["action"].shape == (3, 2, A)
    assert np.isnan(dump.fields["reward"][2]).all()
    assert dump.after["obs"][0].tolist() == [7.0, 7.0]
    assert dump.after["qpos"][0].tolist() == [7.0, 7.0]
    assert (dump.meta["source"], dump.meta["env"], dump.meta["num_bad_envs"]) == ("reward", 1, 3)


def test_the_number_of_dumps_is_limited(tmp_path):
    wrong = {step: put("reward", 0, np.nan) for step in range(0, 40, 2)}
    env = dumping(
        Scripted(wrong), tmp_path, NanGuardConfig(policy="drop_episode", max_drop_frac=1.0)
    )
    run(env, 40)
    assert env.dropped == {"reward": 20}
    assert len(list(tmp_path.iterdir())) == MAX_DUMPS


def test_a_disk_that_refuses_the_dump_does_not_hide_the_cause(tmp_path):
    (tmp_path / "file").touch()
    env = dumping(Scripted({0: put("reward", 0, np.nan)}), tmp_path / "file")
    with pytest.raises(NonFiniteError, match=r"^reward NaN env 0 step 0$"):
        run(env, 1)


def test_a_damaged_or_foreign_dump_is_named(tmp_path):
    with pytest.raises(NonFiniteError):
        run(dumping(Scripted({2: put("obs", 0, np.nan)}), tmp_path), 3)
    (path,) = tmp_path.iterdir()
    raw = path.read_bytes()
    for length in range(0, len(raw) - 1, 61):
        path.write_bytes(raw[:length])
        with pytest.raises(NanDumpError, match="nan_00000002_observation"):
            read_nan_dump(path)
    np.savez(path, obs=np.zeros(3))
    with pytest.raises(NanDumpError, match="not a dump of the NaN guard"):
        read_nan_dump(path)
