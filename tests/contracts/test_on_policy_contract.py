"""What PPO and APPO promise between collector and learner, on the real loops of both."""

import copy
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_policy_rig import FINAL, HORIZON, A, C, E, O, T, make_rig

from unilab_core.nets.gaussian import log_prob
from unilab_core.nets.policy_file import load_policy
from unilab_core.run.failures import NonFiniteError
from unilab_core.telemetry.metric_schema import expected_tags, family_of
from unilab_ipc.errors import Closed
from unilab_learner.algos.ppo import observations

ALGOS = ("ppo", "appo")
BOTH = pytest.mark.parametrize("algo", ALGOS)


@pytest.fixture
def rig(tmp_path):
    made = []

    def make(algo, *overrides, folder="run", **kwargs):
        found = make_rig(algo, tmp_path / folder, *overrides, **kwargs)
        made.append(found)
        return found

    yield make
    for found in made:
        found.stop()


def spy(target, name):
    """Keep the arguments and results of a method."""
    calls, original = [], getattr(target, name)

    def wrapped(*args, **kwargs):
        result = original(*args, **kwargs)
        calls.append((args, copy.deepcopy(result)))  # batches are views of a pool in use
        return result

    setattr(target, name, wrapped)
    return calls


@BOTH
def test_every_iteration_is_an_update_and_the_run_ends_with_both_sides_done(rig, algo):
    run = rig(algo)
    learned = spy(run.learner, "learn")
    assert run.run() == "completed"
    assert run.error is None
    assert len(learned) == 5
    assert run.parts.progress.iteration == 5
    assert run.parts.progress.env_steps == 5 * T * E
    assert [step for step, _ in run.sink.records] == [k * T * E for k in range(1, 6)]
    assert run.parts.saver.last_checkpoint.name == "checkpoint_00000005.pt"


@BOTH
def test_every_canonical_tag_appears_and_no_other(rig, algo):
    run = rig(algo)
    run.run()
    run.parts.logger.close(1.0)
    seen = {tag for _, scalars in run.sink.records for tag in scalars}
    families = {tag for tag in seen if family_of(tag) is not None}
    assert families == {"reward/alive", "Episode_Termination/time_out"}
    assert seen - families == expected_tags(algo)


@BOTH
def test_the_last_observation_and_the_true_final_ones_reach_the_learner(rig, algo):
    """Sentinels: the step counter after the rollout's last step, and FINAL at time limits."""
    run = rig(algo, "algo.max_iterations=2")
    if algo == "ppo":
        stored, learned = spy(run.learner, "store"), spy(run.learner, "add_returns")
        run.run()
        # The counter of the observation after T (then 2 T) steps.
        assert [args[0]["critic"][0, 2].item() for args, _ in learned] == [T, 2 * T]
        extras = [args[3] for args, _ in stored]
        finals = torch.cat([extra["final_critic_obs"] for extra in extras])
        assert extras[0]["log"] == {"reward/alive": 1.0, "Episode_Termination/time_out": 0.0}
    else:
        batches = spy(run.learner.pool, "batch")
        run.run()
        assert [batch.critic_obs[T, 0, 2].item() for _, batch in batches] == [T, 2 * T]
        assert all(batch.critic_obs.shape[0] == T + 1 for _, batch in batches)
        finals = torch.cat([batch.final_critic_obs for _, batch in batches])
    assert len(finals) > 0
    assert (finals[:, 0] == HORIZON + FINAL).all()


def test_ppo_folds_the_value_of_the_final_observation_into_the_reward(rig):
    run = rig("ppo", "algo.max_iterations=1", "algo.learning_rate=1e-9", "algo.schedule=fixed")
    stored = spy(run.learner, "store")
    run.run()
    algorithm = run.learner.algorithm
    for step, (args, _) in enumerate(stored):
        expected = np.ones(E)
        rows = args[3]["truncated_rows"].tolist()
        for row, final in zip(rows, args[3]["final_critic_obs"], strict=True):
            # Weights have hardly moved. The normaliser has learned the rollout by now, but then it
            # was fresh: mean 0, standard deviation 1, epsilon .01.
            with torch.no_grad():
                value = algorithm.critic.mlp(final.unsqueeze(0) / 1.01).item()
            expected[row] += algorithm.gamma * value
        got = algorithm.storage.rewards[step].flatten().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert any(args[3]["truncated_rows"].numel() for args, _ in stored)


def test_appo_acts_with_published_weights_and_says_which(rig):
    run = rig("appo", "algo.max_iterations=6")
    staged = []
    original = run.learner.pool.stage

    def stage(slot, version):
        staged.append((slot.policy_version, slot.normaliser_version, version))
        obs, actions = torch.tensor(slot.obs[:T]), torch.tensor(slot.actions)
        if slot.policy_version == version:  # still the newest: recompute what was written
            with torch.no_grad():
                mean, std = run.learner.state.policy(obs)
            torch.testing.assert_close(torch.tensor(slot.mean), mean, rtol=1e-4, atol=1e-5)
            expected = log_prob(actions, mean, std)
            torch.testing.assert_close(torch.tensor(slot.log_prob), expected, rtol=1e-3, atol=1e-4)
        return original(slot, version)

    run.learner.pool.stage = stage
    run.run()
    assert staged[0] == (0, 0, 0)
    versions = [behaviour for behaviour, _, _ in staged]
    assert versions == sorted(versions)
    slots = run.parts.config.algo.ring_slots
    assert all(0 <= now - behaviour <= slots + 1 for behaviour, _, now in staged)
    assert all(behaviour == normaliser for behaviour, normaliser, _ in staged)
    assert run.learner.pool.max_lag <= slots + 1
    assert run.learner.pool.num_dropped == 0


def test_appo_rollouts_arrive_whole_and_in_order_although_the_learner_is_slow(rig):
    """Defect (b): the ring's checksums are on, and released slots are filled with NaN."""
    run = rig("appo", "algo.max_iterations=8", "algo.replay_queue_size=2")
    counters = []
    original = run.learner.pool.stage

    def stage(slot, version):
        time.sleep(0.01)
        assert np.isfinite(slot.obs).all()
        counters.extend(slot.obs[:T, 0, 2].tolist())
        return original(slot, version)

    run.learner.pool.stage = stage
    run.run()
    assert counters == list(range(len(counters)))
    gauges = run.ring.gauges()
    assert gauges["backpressure_waits"] > 0  # the collector waited, nothing was overwritten


def test_appo_trains_on_the_newest_rollouts_side_by_side(rig):
    run = rig("appo", "algo.replay_queue_size=3", "algo.max_iterations=6", "algo.ring_slots=4")
    batches = spy(run.learner.pool, "batch")
    run.run()
    widths = [batch.reward.shape[1] for _, batch in batches]
    assert widths[-1] == 3 * E
    assert widths == sorted(widths)
    read = [scalars["Train/rollouts_read"] for _, scalars in run.sink.records]
    assert all(1 <= count <= 3 for count in read)
    for (_, batch), count in zip(batches, read, strict=True):
        assert len(batch.new_obs) == count * T * E


@pytest.mark.parametrize(
    ("algo", "phase", "owner", "method"),
    [
        ("appo", "Perf/learner_replay_stage_ms", "learner", "stage"),
        ("appo", "Perf/learner_replay_sample_ms", "learner", "sample"),
        ("appo", "Perf/learning_time", "learner", "learn"),
        ("appo", "Perf/learner_weight_publish_ms", "learner", "pack"),
        ("appo", "Perf/learner_collector_wait_ms", "env", "step"),
        ("ppo", "Perf/learning_time", "learner", "learn"),
        ("ppo", "Perf/collection_time", "env", "step"),
    ],
)
def test_a_delay_shows_in_its_own_phase_and_in_no_other(rig, algo, phase, owner, method):
    run = rig(algo, "algo.max_iterations=3")
    delay_s = 0.25
    target = getattr(run, owner)
    original = getattr(target, method)

    def slow(*args, **kwargs):
        time.sleep(delay_s)
        return original(*args, **kwargs)

    setattr(target, method, slow)
    run.run()
    _, scalars = run.sink.records[-1]
    times_s = {
        tag: value / (1000.0 if tag.endswith("_ms") else 1.0)
        for tag, value in scalars.items()
        if tag.startswith("Perf/learner_") or tag in ("Perf/learning_time", "Perf/collection_time")
    }
    assert times_s[phase] >= delay_s
    # The collector's wall contains its own waits in neither algorithm.
    others = [tag for tag in times_s if tag != phase and tag != "Perf/learner_collector_wait_ms"]
    if owner == "env":
        others = [tag for tag in others if tag != "Perf/collection_time"]
    assert max((times_s[tag] for tag in others), default=0.0) < delay_s


@BOTH
def test_a_saving_stop_finishes_the_iteration_and_saves(rig, algo):
    run = rig(algo, "algo.max_iterations=1000")
    run.env.before_step = lambda: run.env.total == 6 * T and run.stop_level.__setitem__(0, 1)
    assert run.run() == "stopped"
    assert run.error is None
    assert run.parts.progress.iteration >= 3
    assert run.parts.saver.last_checkpoint is not None


@BOTH
def test_a_stop_without_saving_saves_nothing(rig, algo):
    run = rig(algo, "algo.max_iterations=1000")

    def stop():
        if run.env.total == 6 * T:
            run.stop_level[0] = 2
            for bell in run.bells:
                bell.ring()

    run.env.before_step = stop
    with pytest.raises(Closed):
        run.run()
    assert run.parts.saver.last_checkpoint is None


@BOTH
def test_a_resumed_run_continues_its_counters_weights_and_rate(rig, algo, tmp_path):
    first = rig(algo)
    first.run()
    again = rig(
        algo, "algo.resume=true", "algo.max_iterations=7", folder="again",
        resume_from=tmp_path / "run",
    )  # fmt: skip
    assert again.parts.progress.env_steps == 5 * T * E
    before, after = first.learner.acting()[0], again.learner.acting()[0]
    obs = torch.randn(9, O)
    assert torch.equal(before.act(obs), after.act(obs))
    assert _rate(again.learner) == _rate(first.learner)
    assert again.run() == "completed"
    assert [scalars_step for scalars_step, _ in again.sink.records] == [6 * T * E, 7 * T * E]


@BOTH
def test_the_exported_policy_is_the_learners(rig, algo, tmp_path):
    run = rig(algo)
    run.run()
    policy = load_policy(tmp_path / "run" / "policy.pt")
    obs = np.random.default_rng(0).normal(size=(6, O)).astype(np.float32)
    if algo == "ppo":
        groups = observations(torch.from_numpy(obs), torch.zeros(6, C))
        with torch.no_grad():
            expected = run.learner.algorithm.actor(groups).numpy()
    else:
        expected = run.learner.state.policy.act(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(policy.act(obs), expected, rtol=1e-4, atol=1e-5)
    assert policy.contract["algo"] == algo
    assert policy.contract["action_width"] == A


@BOTH
def test_data_that_is_not_finite_stops_the_collector_by_name(rig, algo):
    run = rig(algo, "algo.max_iterations=1000")
    original = run.env.step

    def step(actions):
        result = original(actions)
        if run.env.total == 7:
            result.reward[2] = np.nan
            run.stop_level[0] = 2
        return result

    run.env.step = step
    with pytest.raises(Closed):
        run.run()
    run.thread.join(20.0)
    assert isinstance(run.error, NonFiniteError)
    assert "reward NaN env 2" in str(run.error)


@BOTH
def test_a_dropped_episode_is_learned_from_by_nobody_and_training_goes_on(rig, algo):
    run = rig(
        algo, "algo.max_iterations=5", "training.nan_guard.policy=drop_episode",
        "training.nan_guard.max_drop_frac=0.01",
    )  # fmt: skip
    original = run.env.step

    def step(actions):
        result = original(actions)
        if run.env.total == 7:
            result.reward[2] = np.nan
            result.critic_obs[2, 1] = np.inf
        return result

    run.env.step = step
    assert run.run() == "completed"
    assert run.error is None
    tensors = [t for t in run.learner.acting()[0].state_dict().values() if t.is_floating_point()]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
    assert run.parts.logger.summary()["dropped_transitions"] == {"reward": 1}


def _rate(learner):
    return learner.state.lr.item() if hasattr(learner, "state") else learner.algorithm.learning_rate
