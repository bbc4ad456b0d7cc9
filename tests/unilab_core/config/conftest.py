"""A hand-made conf/ folder with one task, so that these tests do not move with the shipped one."""

from pathlib import Path

import pytest

SAC = """
algo:
  algo: sac
  algo_log_name: sac
  preset: fast
  seed: 1
  num_envs: 1000
  max_iterations: 100
  save_interval: 10
  gamma: 0.97
  load_run: -1
  checkpoint: -1
  resume: false
  batch_size: 64
  replay_buffer_n: 8
  updates_per_step: 4
  learning_starts: 1
  policy_frequency: 2
  tau: 0.1
  actor_lr: 3.0e-4
  critic_lr: 3.0e-4
  alpha_lr: 3.0e-4
  alpha_init: 0.01
  target_entropy_ratio: 0.0
  actor_hidden_dim: 32
  critic_hidden_dim: [32, 16]
  num_atoms: 11
  v_min: -5.0
  v_max: 5.0
  use_layer_norm: true
  obs_normalization: true
  max_grad_norm: 0.0
  n_step: 1
  age_decay: 0.0
"""

ENV = """
sim_dt: 0.01
ctrl_dt: 0.02
episode_length_s: 20.0
observations:
  policy:
    gyro: {function: gyro}
actions:
  joints: {function: joint_position}
rewards:
  tracking: {function: tracking, weight: 1.0}
  effort: {function: effort, weight: -0.5}
terminations:
  time_out: {function: time_out, time_out: true}
"""

FILES = {
    "sac/config.yaml": SAC,
    "env/walk.yaml": ENV,
    "sac/task/walk/base.yaml": "defaults:\n  - /env/walk@env\nalgo: {num_envs: 200}\n",
    "sac/task/walk/published.yaml": (
        "env: {rewards_preset: published, rewards: {effort: {weight: -9.0}}}\n"
    ),
    "sac/task/walk/mujoco.yaml": "algo: {tau: 0.5}\n",
    "sac/task/crawl/base.yaml": "defaults:\n  - /env/walk@env\n",
    "hardware/cpu.yaml": "hardware: {profile: cpu}\ntraining: {device: cpu}\n",
    "hardware/gpu.yaml": "hardware: {profile: gpu}\n",
    "sac/hardware/cpu.yaml": "algo: {batch_size: 16, num_envs: 20}\n",
    "sac/preset/classic.yaml": "algo: {preset: classic, num_atoms: 1, batch_size: 32}\n",
}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "conf"
