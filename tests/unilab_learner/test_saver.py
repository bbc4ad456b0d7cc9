"""What a resume accepts, and what a disk that fails does to the saves of a run."""

import errno

import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.contracts import EnvSpec
from unilab_core.nets.torch_file import read_torch_file, write_torch_file
from unilab_core.run.failures import CheckpointError, FinalSaveError, NonFiniteError
from unilab_core.run.run_dir import RunPaths
from unilab_learner.sac_learner import SacLearner
from unilab_learner.saver import Progress, Saver

SPEC = EnvSpec(
    task="go2_joystick_flat", sim="mujoco", num_envs=4, obs_width=3, critic_obs_width=5,
    action_width=2, action_low=(-1.0, -1.0), action_high=(1.0, 1.0), obs_terms=(("all", 3),),
    critic_obs_terms=(("all", 5),), reward_terms=(), termination_terms=(), log_keys=(),
    ctrl_dt_s=0.02, max_episode_steps=5, backend_device=None,
)  # fmt: skip
SETTINGS = ["algo.num_envs=4", "algo.actor_hidden_dim=8", "algo.critic_hidden_dim=8",
            "algo.num_atoms=5", "algo.replay_buffer_n=8", "algo.batch_size=8",
            "algo.save_interval=1", "algo.symmetry_augmentation=false",
            "training.device=cpu"]  # fmt: skip


@pytest.fixture
def make(tmp_path):
    run = RunPaths(tmp_path)
    run.checkpoints.mkdir()

    def build(*settings):
        config = compose("sac", "go2_joystick_flat", "mujoco", [*SETTINGS, *settings], environ={})
        learner = SacLearner(config.algo, SPEC, torch.device("cpu"), use_amp=False)
        return Saver(
            config=config,
            spec=SPEC,
            paths=run,
            learner=learner,
            seconds_since_start=lambda: build.seconds,
        )

    build.run = run
    build.seconds = 1.0
    return build


def test_what_was_saved_is_resumed(make):
    make().save_final(Progress(iteration=7, env_steps=28))
    saver = make()
    progress = saver.resume(make.run.run_dir, -1)
    assert (progress.iteration, progress.env_steps) == (7, 28)
    assert saver.skipped == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"identity": {"algo": "ppo"}}, "checkpoint algo: got 'ppo', expected 'sac'"),
        ({"identity": 3}, "without identity or counters"),
        ({"counters": {"iteration": "x", "env_steps": 1}}, "counter iteration: got 'x'"),
        ({"counters": {}}, "counter iteration: got None"),
        ({"learner": None}, "without the learner's state"),
    ],
)
def test_a_whole_file_of_something_else_is_passed_over_with_its_reason(make, change, reason):
    make().save_final(Progress(iteration=1, env_steps=4))
    content = read_torch_file(make.run.checkpoints / "checkpoint_00000001.pt")
    write_torch_file(make.run.checkpoints / "checkpoint_00000002.pt", {**content, **change})
    saver = make()
    assert saver.resume(make.run.run_dir, -1).iteration == 1
    assert len(saver.skipped) == 1
    assert reason in saver.skipped[0]
    with pytest.raises(CheckpointError, match=reason.split("'")[0]):
        make().resume(make.run.run_dir, 2)


def test_networks_of_another_size_are_named(make):
    make().save_final(Progress(iteration=1, env_steps=4))
    path = make.run.checkpoints / "checkpoint_00000001.pt"
    content = read_torch_file(path)
    del content["learner"]["sac"]["actor"]
    write_torch_file(path, content)
    with pytest.raises(CheckpointError, match="does not fit these networks"):
        make().resume(make.run.run_dir, -1)


def test_a_full_disk_is_counted_tried_again_and_fails_only_the_last_save(make, monkeypatch):
    saver = make()
    assert saver.try_save(Progress(iteration=1, env_steps=4)) == "saved checkpoint_00000001.pt"
    before = (make.run.checkpoints / "checkpoint_00000001.pt").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", _no_space)
        said = saver.try_save(Progress(iteration=2, env_steps=8))
        assert said.startswith("checkpoint of iteration 2 not written: [Errno 28]")
        with pytest.raises(FinalSaveError) as caught:
            saver.save_final(Progress(iteration=3, env_steps=12))
    assert caught.value.exit_code == 14
    assert saver.num_failed_saves == 1
    names = sorted(path.name for path in make.run.checkpoints.iterdir())
    assert names == ["checkpoint_00000001.pt"]
    assert (make.run.checkpoints / names[0]).read_bytes() == before
    assert saver.due(Progress(iteration=4))  # the next interval tries again
    assert saver.try_save(Progress(iteration=4, env_steps=16)) == "saved checkpoint_00000004.pt"


def test_a_weight_that_is_not_finite_ends_the_clocked_series_by_name(make):
    saver = make("training.policy_interval_s=0.5")
    make.seconds = 2.0
    saver.export_policy_if_due(Progress(iteration=1))
    written = list(make.run.policies.iterdir())
    assert len(written) == 1
    with torch.no_grad():
        saver._learner.acting()[0].net[0].bias[1] = float("nan")
    make.seconds = 3.0
    with pytest.raises(NonFiniteError, match=r"weights \(.*net\.0\.bias\)"):
        saver.export_policy_if_due(Progress(iteration=2))
    assert list(make.run.policies.iterdir()) == written


def _no_space(*_args):
    raise OSError(errno.ENOSPC, "No space left on device")
