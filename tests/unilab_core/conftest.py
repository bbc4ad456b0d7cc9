"""A small valid configuration."""

from pathlib import Path

import pytest

from unilab_core.config.compose import compose
from unilab_core.config.config import Config

FILES = {
    "sac/config.yaml": """
algo:
  {algo: sac, algo_log_name: sac, preset: fast, seed: 1, num_envs: 4, max_iterations: 10,
   save_interval: 5, gamma: 0.9, load_run: -1, checkpoint: -1, resume: false, batch_size: 8,
   replay_buffer_n: 8, updates_per_step: 1, learning_starts: 1, policy_frequency: 1, tau: 0.1,
   actor_lr: 1.0e-3, critic_lr: 1.0e-3, alpha_lr: 1.0e-3, alpha_init: 0.1,
   target_entropy_ratio: 0.0, actor_hidden_dim: 8, critic_hidden_dim: 8, num_atoms: 1,
   v_min: -1.0, v_max: 1.0, use_layer_norm: false, obs_normalization: false,
   max_grad_norm: 0.0, n_step: 1, age_decay: 0.0}
""",
    "sac/task/walk/base.yaml": """
env:
  sim_dt: 0.01
  ctrl_dt: 0.02
  episode_length_s: 1.0
  observations: {policy: {gyro: {function: gyro}}}
  actions: {joints: {function: joint_position}}
  rewards: {alive: {function: alive, weight: 1.0}}
  terminations: {time_out: {function: time_out, time_out: true}}
""",
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for name, text in FILES.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    log_root = f"training.log_root={tmp_path / 'logs'}"
    return compose("sac", "walk", overrides=[log_root], conf=tmp_path / "conf")
