"""FlashSAC on the loop: warm-up, noise, reward scale at sample time, checkpoints, files."""

import copy

import numpy as np
import pytest
import torch

from unilab_core.nets.policy_file import load_policy
from unilab_core.run.failures import CheckpointError, NonFiniteError
from unilab_core.telemetry.metric_schema import LOGGER_OWNED, expected_tags
from unilab_core.tools.policy_source import find_policy

SCALE = "Train/reward_scale_std"


def iterations(run):
    records = [r for r in run.records.read(10_000) if r["kind"] == "iteration"]
    return [record for record in records if record["status"] == "Training"]


def ticks(run, count, *, reward=1.0):
    """Store `count` ticks as the drain would."""
    learner = run.parts.learner
    envs = learner.replay.num_envs
    rng = np.random.default_rng(3)
    for _ in range(count):
        learner.observe(
            learner.replay.append(
                obs=rng.normal(size=(envs, 3)).astype(np.float32),
                critic_obs=rng.normal(size=(envs, 5)).astype(np.float32),
                action=rng.uniform(-1, 1, (envs, 2)).astype(np.float32),
                reward=np.full(envs, reward, np.float32),
                terminated=np.zeros(envs, np.uint8),
                truncated=np.zeros(envs, np.uint8),
                next_obs=rng.normal(size=(envs, 3)).astype(np.float32),
                next_critic_obs=rng.normal(size=(envs, 5)).astype(np.float32),
            )
        )


@pytest.fixture
def flash_run(tiny_run):
    def make(*overrides, **kwargs):
        return tiny_run(*overrides, algo="flashsac", **kwargs)

    return make


def test_a_run_logs_the_tags_of_its_own_and_ends_with_a_policy(flash_run):
    run = flash_run("algo.policy_ema=0")
    assert run.run() == "completed"
    run.collector.join(10.0)
    assert run.collector.error is None
    records = iterations(run)
    assert len(records) == 6
    metrics = {
        tag for tag in expected_tags("flashsac") - LOGGER_OWNED if not tag.startswith("Perf/")
    }
    assert set(records[-1]["metrics"]) == metrics | {SCALE}
    policy = load_policy(run.parts.saver._paths.policy)
    assert policy.contract["algo"] == "flashsac"
    rows = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    with torch.no_grad():
        expected = run.parts.learner.state.actor.act(torch.from_numpy(rows)).numpy()
    assert np.allclose(policy.act(rows), expected)


def test_without_reward_normalisation_there_is_no_scale(flash_run):
    run = flash_run("algo.normalize_reward=false")
    run.run()
    assert SCALE not in iterations(run)[-1]["metrics"]


def test_actions_are_random_until_the_buffer_holds_its_minimum(flash_run, monkeypatch):
    run = flash_run("algo.learning_starts=5", "algo.max_iterations=3")
    learner, calls = run.parts.learner, []
    for name in ("act", "act_randomly"):
        original = getattr(learner, name)

        def noted(*args, name=name, original=original):
            calls.append((name, learner.replay.ticks_written))
            return original(*args)

        monkeypatch.setattr(learner, name, noted)
    run.run()
    random = [written for name, written in calls if name == "act_randomly"]
    chosen = [written for name, written in calls if name == "act"]
    assert random == [0, 1, 2, 3, 4]
    assert min(chosen) >= 5
    warm_up = np.concatenate(run.collector.actions[:5])
    assert np.abs(warm_up).max() <= 1.0
    assert np.abs(warm_up).max() > 0.5


def test_old_rewards_are_divided_by_the_newest_scale(flash_run):
    run = flash_run("algo.gamma=0.0")
    learner = run.parts.learner
    ticks(run, 4, reward=1.0)
    learner.gather()
    before = torch.cat([batch.reward for batch in learner.take()])
    # gamma 0: G is the reward itself, no spread, largest 1: the scale is 1 / 5.
    assert before.tolist() == pytest.approx([5.0] * 16)
    ticks(run, 4, reward=10.0)
    learner.gather()
    after = torch.cat([batch.reward for batch in learner.take()]).tolist()
    # var(G) over both halves: 20.25, spread 4.5, which is more than 10 / 5.
    assert {round(value, 4) for value in after} == {round(1 / 4.5, 4), round(10 / 4.5, 4)}


def test_the_collector_s_ends_reach_the_noise(flash_run, monkeypatch):
    run = flash_run("algo.max_iterations=4")
    seen, learner = [], run.parts.learner
    original = learner.noise.next

    def noted(ended, generator):
        seen.append(ended.tolist())
        return original(ended, generator)

    monkeypatch.setattr(learner.noise, "next", noted)

    def end_one(tick):
        run.collector.port.done[...] = [0, 1, 0, 0] if tick % 2 else [0, 0, 0, 1]

    run.collector.before_step = end_one
    run.run()
    assert len(seen) == 4
    assert {tuple(row) for row in seen} == {(0, 1, 0, 0), (0, 0, 0, 1)}


def test_a_resumed_run_continues_weights_statistics_and_scale(flash_run):
    first = flash_run(folder="first")
    first.run()
    first.collector.join(10.0)
    folder = first.parts.saver._paths.run_dir
    second = flash_run("algo.max_iterations=9", folder="second", resume_from=folder)
    one, other = first.parts.learner, second.parts.learner
    for network in ("actor", "critics", "target_critics"):
        loaded = getattr(other.state, network).state_dict()
        for name, value in getattr(one.state, network).state_dict().items():
            assert torch.equal(loaded[name], value)
    assert other.reward_normalizer.scale.item() == one.reward_normalizer.scale.item()
    assert other.state.num_updates == one.state.num_updates == 12
    second.run()
    assert [record["iteration"] for record in iterations(second)] == [7, 8, 9]


def test_a_checkpoint_can_be_played(flash_run):
    run = flash_run("algo.save_interval=3")
    run.run()
    folder = run.parts.saver._paths.run_dir
    newest, _ = find_policy(folder, None)
    loaded, path = find_policy(folder, "6")
    assert path.name == "checkpoint_00000006.pt"
    rows = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert np.array_equal(loaded.act(rows), newest.act(rows))


def test_a_checkpoint_of_sac_is_refused(tiny_run):
    first = tiny_run(folder="first")
    first.run()
    with pytest.raises(CheckpointError, match="algo: got 'sac'"):
        tiny_run(folder="second", algo="flashsac", resume_from=first.parts.saver._paths.run_dir)


def test_a_nan_in_the_replay_stops_the_job_before_it_reaches_weights_or_disk(flash_run):
    run = flash_run("algo.max_iterations=1000")

    def poison(tick):
        if tick == 6:
            run.parts.learner.replay._rows[...] = float("nan")

    run.collector.before_step = poison
    with pytest.raises(NonFiniteError, match="loss"):
        run.run()
    for value in run.parts.learner.state.actor.state_dict().values():
        assert bool(torch.isfinite(value).all())
    assert list(run.parts.saver._paths.checkpoints.iterdir()) == []


def test_exporting_the_averaged_policy_changes_nothing_that_is_learned(flash_run):
    run = flash_run("algo.policy_ema=0.9")
    learner = run.parts.learner
    ticks(run, 6)
    for _ in range(3):
        learner.gather()
        learner.learn(learner.take())
    before = copy.deepcopy(learner.state_dict())
    actor, normalizer = learner.acting()
    again, _ = learner.acting()
    assert normalizer is None
    for name, value in actor.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    after = learner.state_dict()
    assert torch.equal(after["sampler"], before["sampler"])
    assert torch.equal(after["flash_sac"]["generator"], before["flash_sac"]["generator"])
    for network in ("actor", "average_actor"):
        for name, value in before["flash_sac"][network].items():
            assert torch.equal(after["flash_sac"][network][name], value)


def test_the_replay_is_emptied_at_the_configured_tick(flash_run):
    run = flash_run("algo.replay_restart_tick=5")
    ticks(run, 4)
    assert run.parts.learner.replay.size == 16
    ticks(run, 3)
    assert run.parts.learner.replay.size == (1 + 2) * 4  # the newest tick at the restart, two since


def test_nothing_is_learned_while_the_restarted_replay_fills(flash_run):
    run = flash_run("algo.replay_restart_tick=5", "algo.replay_restart_fill=3")
    learner = run.parts.learner
    ticks(run, 4)
    updates = []
    for _ in range(5):  # ticks 5 to 9; the replay rests from the 5th to the 7th
        ticks(run, 1)
        before = learner.state.num_updates
        learner.gather()
        figures, _ = learner.learn(learner.take())
        updates.append(learner.state.num_updates - before)
        assert learner.rows_per_iteration == updates[-1] * learner.rows_per_batch
    per_step = learner.cfg.updates_per_step
    assert updates == [0, 0, 0, per_step, per_step]
    assert "Loss/critic" in figures


def test_a_resumed_run_does_not_empty_the_replay_again(flash_run):
    run = flash_run("algo.replay_restart_tick=5")
    state = run.parts.learner.state_dict()
    assert state["ticks"] == 0
    run.parts.learner.load_state_dict(state | {"ticks": 40})
    ticks(run, 7)
    assert run.parts.learner.replay.size == 7 * 4
    assert run.parts.learner.state_dict()["ticks"] == 47
