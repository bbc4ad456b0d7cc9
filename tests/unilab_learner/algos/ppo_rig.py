"""A small PPO and rollouts of noise for it."""

import torch

from unilab_core.config.on_policy import PpoConfig
from unilab_learner.algos.ppo import add_final_values, build_ppo, observations

T, E, O, C, A = 5, 6, 3, 4, 2  # noqa: E741


def config(**changes):
    values = {
        "algo": "ppo",
        "algo_log_name": "rsl_rl_ppo",
        "preset": "default",
        "seed": 1,
        "num_envs": E,
        "max_iterations": 10,
        "save_interval": 10,
        "gamma": 0.9,
        "load_run": -1,
        "checkpoint": -1,
        "resume": False,
        "num_learning_epochs": 2,
        "num_mini_batches": 2,
        "learning_rate": 1e-3,
        "schedule": "adaptive",
        "desired_kl": 0.01,
        "clip_param": 0.2,
        "entropy_coef": 0.01,
        "value_loss_coef": 1.0,
        "use_clipped_value_loss": True,
        "lam": 0.95,
        "max_grad_norm": 1.0,
        "init_std": 0.5,
        "obs_normalization": True,
        "hidden_dims": (16, 8),
        "activation": "elu",
        "num_steps_per_env": T,
    }
    return PpoConfig(**(values | changes))


def build(cfg, seed=0):
    torch.manual_seed(seed)
    torch.set_num_threads(2)  # one for each network, whatever this machine has
    return build_ppo(
        cfg, obs_width=O, critic_obs_width=C, action_width=A, device=torch.device("cpu")
    )


@torch.inference_mode()
def collect(algorithm, *, reward=1.0, terminated=(), truncated=(), final=None, constant=False):
    """One rollout; `terminated` and `truncated` are sets of (step, env)."""
    make = torch.ones if constant else torch.randn

    def observe():
        return observations(make(E, O), make(E, C))

    obs = observe()
    for step in range(T):
        algorithm.act(obs)
        obs = observe()
        done = torch.zeros(E)
        for at, env in [*terminated, *truncated]:
            done[env] = max(done[env].item(), float(at == step))
        rows = torch.tensor([e for at, e in truncated if at == step], dtype=torch.long)
        finals = torch.full((rows.numel(), C), 1.0 if final is None else final)
        rewards = add_final_values(algorithm, torch.full((E,), reward), rows, finals)
        algorithm.process_env_step(obs, rewards, done, {})
    algorithm.compute_returns(obs)
    return obs
