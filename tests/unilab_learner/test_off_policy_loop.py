"""The learner's loop against a scripted collector in the same process."""

import time

import numpy as np
import pytest
import torch

from unilab_core.nets.policy_file import load_policy
from unilab_core.run.failures import CheckpointError, FinalSaveError, NonFiniteError
from unilab_ipc.errors import Closed

E = 4
PHASE_TAGS = [
    f"Perf/learner_{phase}_ms"
    for phase in (
        "collector_wait",
        "inference",
        "collector_release",
        "replay_batch_wait",
        "replay_sample",
    )
]


def iterations(run):
    return [r for r in run.records.read(10_000) if r["kind"] == "iteration" and r["iteration"] > 0]


def test_every_tick_is_stored_once_and_the_run_ends_closed_and_drained(tiny_run):
    run = tiny_run()
    assert run.run() == "completed"
    run.collector.join(10.0)
    assert run.collector.error is None
    assert run.collector.closed
    # 3 warm-up ticks and one per iteration.
    assert run.collector.committed == 9
    replay = run.parts.learner.replay
    assert replay.ticks_written == 9
    assert run.loop._progress.env_steps == 9 * E
    rows = replay.gather(torch.arange(9), torch.zeros(9, dtype=torch.long))
    assert rows.obs[:, 0].tolist() == list(range(9))
    gauges = run.ingress.gauges()
    assert (gauges["occupancy"], gauges["dropped_batches"]) == (0, 0)


def test_updates_start_after_the_warm_up_and_versions_count_iterations(tiny_run):
    run = tiny_run()
    run.run()
    run.collector.join(10.0)
    # Warm-up and the first iteration act with version 0; each later tick with the newest.
    assert run.collector.versions == [0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert run.parts.learner.state.num_updates == 6 * 2
    warm_up = np.abs(np.array(run.collector.actions[:3]))
    assert warm_up.max() > 0.7  # uniform over [-1, 1], unlike a fresh policy with std 0.08


def test_one_iteration_serves_env_steps_per_sync_ticks_without_a_circular_wait(tiny_run):
    run = tiny_run(
        "training.env_steps_per_sync=5", "algo.learning_starts=37", "algo.max_iterations=3"
    )
    run.run()
    run.collector.join(10.0)
    assert run.collector.error is None
    assert run.collector.committed == 37 + 3 * 5
    # The axis counts answered ticks, whenever their rows arrive.
    assert [record["env_steps"] for record in iterations(run)] == [
        (37 + 5 * k) * E for k in (1, 2, 3)
    ]
    assert run.loop._progress.env_steps == (37 + 15) * E


def test_phases_and_other_add_up_to_the_wall(tiny_run):
    run = tiny_run("algo.max_iterations=20")
    run.run()
    for record in iterations(run):
        parts = sum(record["learner"][tag] for tag in PHASE_TAGS)
        parts += record["learner"]["Perf/learning_time"] * 1e3
        assert parts == pytest.approx(record["accounted_ms"])
        assert parts + record["other_ms"] == pytest.approx(record["wall_ms"])
        nested = sum(
            record["learner"][f"Perf/learner_inference_{part}_ms"]
            for part in ("h2d", "forward", "d2h")
        )
        assert nested <= record["learner"]["Perf/learner_inference_ms"]


@pytest.mark.parametrize(
    ("target", "tag"),
    [
        ("infer", "Perf/learner_inference_ms"),
        ("respond", "Perf/learner_collector_release_ms"),
        ("gather", "Perf/learner_replay_batch_wait_ms"),
        ("take", "Perf/learner_replay_sample_ms"),
        ("learn", "Perf/learning_time"),
        ("collector", "Perf/learner_collector_wait_ms"),
    ],
)
def test_a_delay_shows_in_its_own_phase_and_in_no_other(tiny_run, monkeypatch, target, tag):
    run = tiny_run("algo.max_iterations=6")
    delay_s = 0.8 if target == "collector" else 0.2

    def slow(function):
        def wrapped(*args):
            time.sleep(delay_s)
            return function(*args)

        return wrapped

    if target == "collector":
        run.collector.before_step = lambda tick: time.sleep(delay_s)
    else:
        owner = run.parts.server if target in ("infer", "respond") else run.parts.learner
        monkeypatch.setattr(owner, target, slow(getattr(owner, target)))
    run.run()
    # The first iteration's request is already there. The fastest iteration of each phase is
    # looked at, so that a busy machine does not look like a delay.
    steady = iterations(run)[2:]
    fastest_ms = {
        name: min(record["learner"][name] for record in steady)
        for name in (*PHASE_TAGS, "Perf/learning_time")
    }
    fastest_ms["Perf/learning_time"] *= 1e3
    fastest_ms["Other"] = min(record["other_ms"] for record in steady)
    # The collector's delay overlaps with the update, so a part of it is hidden.
    assert fastest_ms.pop(tag) > delay_s * 1e3 * (0.5 if target == "collector" else 1.0)
    assert max(fastest_ms.values()) < delay_s * 1e3 * 0.5


def test_the_logged_metrics_are_the_canonical_ones(tiny_run):
    run = tiny_run()
    run.run()
    record = iterations(run)[-1]
    assert {
        "Loss/critic", "Loss/actor", "Loss/temperature", "Loss/entropy", "Policy/temperature",
        "Train/critic_gradient_norm", "Train/actor_gradient_norm", "Train/target_q_max",
        "Train/target_q_min", "Train/replay_ingress_depth", "Train/replay_ingress_occupancy",
        "Train/replay_ingress_high_water", "Train/replay_ingress_backpressure_wait_ms",
        "Train/replay_ingress_dropped_batches",
    } == set(record["metrics"])  # fmt: skip
    assert record["buffer"] in (8 * E, 9 * E)
    assert record["reward_mean"] is not None


def test_stop_level_one_finishes_the_iteration_and_saves(tiny_run):
    run = tiny_run("algo.max_iterations=100000")

    def stop_at_ten(tick):
        if tick == 10:
            run.stop_level[0] = 1

    run.collector.before_step = stop_at_ten
    assert run.run() == "stopped"
    run.collector.join(10.0)
    assert run.collector.closed
    iteration = run.loop._progress.iteration
    assert 7 <= iteration <= 9
    folder = run.parts.saver._paths.checkpoints
    assert (folder / f"checkpoint_{iteration:08d}.pt").is_file()


def test_stop_level_two_leaves_without_saving(tiny_run):
    run = tiny_run("algo.max_iterations=100000")

    def stop_at_ten(tick):
        if tick == 10:
            run.stop_level[0] = 2
            run.bells[0].ring()
            time.sleep(0.3)

    run.collector.before_step = stop_at_ten
    with pytest.raises(Closed):
        run.run()
    assert list(run.parts.saver._paths.checkpoints.iterdir()) == []


def test_a_time_limit_ends_the_run_as_well(tiny_run):
    run = tiny_run("algo.max_iterations=100000", "training.max_wall_time_s=0.3")
    assert run.run() == "wall_time"


def test_a_resumed_run_continues_its_counters_and_weights(tiny_run):
    first = tiny_run("algo.max_iterations=6", folder="first")
    first.run()
    first.collector.join(10.0)
    second = tiny_run(
        "algo.max_iterations=9",
        folder="second",
        resume_from=first.parts.saver._paths.run_dir,
    )
    for name, value in first.parts.learner.state.actor.state_dict().items():
        assert torch.equal(second.parts.learner.state.actor.state_dict()[name], value)
    second.run()
    second.collector.join(10.0)
    got = [(r["iteration"], r["env_steps"]) for r in iterations(second)]
    # 9 ticks in the first session; 3 ticks refill the replay, then one per iteration.
    assert [iteration for iteration, _ in got] == [7, 8, 9]
    assert (9 + 3) * E <= got[0][1] <= (9 + 4) * E
    assert second.loop._progress.env_steps == (9 + 6) * E
    # No random actions after a resume.
    assert second.collector.versions[:3] == [6, 6, 6]
    assert np.abs(np.array(second.collector.actions[:3])).max() < 0.7


def test_a_checkpoint_of_another_task_is_refused(tiny_run):
    first = tiny_run(folder="first")
    first.run()
    saver = first.parts.saver
    for path in saver._paths.checkpoints.iterdir():
        path.unlink()  # a good one of our own would be taken instead
    saver._store.save(
        {"identity": {"algo": "sac", "task": "other"}, "counters": {}},
        iteration=99,
        mean_return=None,
    )
    with pytest.raises(CheckpointError, match="task: got 'other'"):
        tiny_run(folder="second", resume_from=saver._paths.run_dir)


def test_a_checkpoint_of_other_network_sizes_is_refused(tiny_run):
    first = tiny_run(folder="first")
    first.run()
    with pytest.raises(CheckpointError, match="does not fit"):
        tiny_run(
            "algo.actor_hidden_dim=[16]",
            folder="second",
            resume_from=first.parts.saver._paths.run_dir,
        )


def test_a_nan_in_the_replay_stops_the_job_before_it_reaches_weights_or_disk(tiny_run):
    run = tiny_run("algo.max_iterations=1000", "algo.obs_normalization=false")

    def poison(tick):
        if tick == 6:
            run.parts.learner.replay._rows[...] = float("nan")

    run.collector.before_step = poison
    with pytest.raises(NonFiniteError, match="loss"):
        run.run()
    for value in run.parts.learner.state.actor.state_dict().values():
        assert bool(torch.isfinite(value).all())
    assert list(run.parts.saver._paths.checkpoints.iterdir()) == []


def test_a_non_finite_action_names_its_environment(tiny_run):
    run = tiny_run("algo.max_iterations=1000")

    def broken(obs, ended):
        actions = torch.zeros(E, 2)
        if run.parts.server.num_served >= 7:
            actions[2, 1] = float("inf")
        return actions

    run.parts.learner.act = broken
    with pytest.raises(NonFiniteError, match="action NaN env 2 step 7"):
        run.run()


def test_an_observation_that_broke_in_the_slot_is_named_even_while_actions_are_random(tiny_run):
    run = tiny_run("algo.learning_starts=20")
    server = run.parts.server
    intact = server.try_request

    def spoiled():
        seq = intact()
        if seq is not None and server.num_served == 5:
            run.collector.port.obs[3, 0] = float("nan")
        return seq

    server.try_request = spoiled
    with pytest.raises(NonFiniteError, match="observation NaN env 3 step 5"):
        run.run()


def test_a_full_disk_is_survived_until_the_final_save(tiny_run, monkeypatch):
    run = tiny_run("algo.save_interval=2")
    saver = run.parts.saver
    failures = []

    def fail(*_args, **_kwargs):
        failures.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saver._store, "save", fail)
    with pytest.raises(FinalSaveError) as caught:
        run.run()
    assert caught.value.exit_code == 14
    assert saver.num_failed_saves == 3  # iterations 2, 4, 6; then the final one
    assert len(failures) == 4
    notes = [r["text"] for r in run.records.read(10_000) if r["kind"] == "event"]
    assert any("not written" in text for text in notes)


def test_policies_are_exported_on_a_clock_and_at_the_end(tiny_run):
    run = tiny_run("training.policy_interval_s=1.0", "algo.max_iterations=12")
    run.run()
    paths = run.parts.saver._paths
    exported = sorted(paths.policies.iterdir())
    assert len(exported) >= 2
    seconds = [load_policy(path).contract["train_seconds"] for path in exported]
    assert seconds == sorted(seconds)
    policy = load_policy(paths.policy)
    assert policy.contract["iteration"] == 12
    assert policy.contract["task"] == "go2_joystick_flat"
    assert policy.act(np.zeros((1, 3), np.float32)).shape == (1, 2)
