"""What one iteration of PPO or APPO must cost here: physics and matrix products, nothing else.

    python -m unilab_core.tools.bench.train_bound PART SECONDS THREADS ALGO TASK [KEY=VALUE ...]

``rollout``  T steps of the batch stepper (the calls alone, robots moved by a random policy), and T
             forward passes of the policy (PPO: and of the value function) on E rows.
``update``   epochs times minibatches of forward and backward passes of both networks at the size
             of a minibatch; no losses, no optimiser, no copies.
``both``     one after the other.

Prints one JSON object with the median seconds of each part. THREADS are those of the role.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from unilab_core.config.compose import compose
from unilab_core.config.config import Config
from unilab_core.config.on_policy import OnPolicyConfig
from unilab_core.envs import make_env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.nets.gaussian import GaussianPolicy, ValueNet
from unilab_core.nets.policy_spec import policy_spec

PARTS = ("rollout", "update", "both")
WARM_UP_TICKS = 48


class Products:
    """Both networks of a configuration on rows of noise."""

    def __init__(
        self, algo: OnPolicyConfig, obs_width: int, critic_width: int, action_width: int
    ) -> None:
        self._algo = algo
        spec = policy_spec(algo, obs_width=obs_width, action_width=action_width)
        self._policy = GaussianPolicy(spec)
        self._value = ValueNet(
            critic_width,
            algo.hidden_dims,
            activation=algo.activation,
            obs_normalization=False,
            obs_clip=0.0,
        )
        self._rows = algo.num_envs * algo.rollout_steps // algo.num_mini_batches
        self._obs = torch.randn(max(self._rows, algo.num_envs), obs_width)
        self._critic_obs = torch.randn(max(self._rows, algo.num_envs), critic_width)

    @torch.inference_mode()
    def forward(self) -> None:
        """The forward passes of one tick."""
        envs = self._algo.num_envs
        self._policy.of_scaled(self._obs[:envs])
        if self._algo.algo == "ppo":  # APPO's value function meets the rollout in the update only
            self._value.of_scaled(self._critic_obs[:envs])

    def update(self) -> float:
        """Seconds of the forward and backward passes of one iteration."""
        obs, critic_obs = self._obs[: self._rows], self._critic_obs[: self._rows]
        start_s = time.perf_counter()
        for _ in range(self._algo.num_learning_epochs * self._algo.num_mini_batches):
            mean, _ = self._policy.of_scaled(obs)
            (mean.sum() + self._value.of_scaled(critic_obs).sum()).backward()
            self._policy.zero_grad()
            self._value.zero_grad()
        return time.perf_counter() - start_s


class Rollout:
    """The physics of a rollout and the forward passes beside it."""

    def __init__(self, env: ManagerBasedEnv, products: Products, num_steps: int) -> None:
        self._env = env
        self._products = products
        self._num_steps = num_steps
        shape = (16, env.spec.num_envs, env.spec.action_width)
        self._actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)
        env.reset()
        for tick in range(WARM_UP_TICKS):
            env.step(self._actions[tick % 16])

    def run(self) -> float:
        """Seconds of one rollout's physics and products."""
        spent_ns = 0
        for tick in range(self._num_steps):
            self._env.step(self._actions[tick % 16])
            spent_ns += self._env.timings_ns["backend"]
            start_ns = time.perf_counter_ns()
            self._products.forward()
            spent_ns += time.perf_counter_ns() - start_ns
        return spent_ns / 1e9


def measure(config: Config, task: str, part: str, seconds: float, threads: int) -> dict[str, float]:
    """Median seconds of each part, as often as fits into ``seconds``."""
    algo = config.algo
    assert isinstance(algo, OnPolicyConfig)
    torch.set_num_threads(threads)
    sim = config.training.sim_backend
    env = make_env(task, sim, config.env, num_envs=algo.num_envs, seed=1, num_threads=threads)
    assert isinstance(env, ManagerBasedEnv)
    spec = env.spec
    products = Products(algo, spec.obs_width, spec.critic_obs_width, spec.action_width)
    parts: dict[str, Callable[[], float]] = {}
    if part != "update":
        parts["rollout_s"] = Rollout(env, products, algo.rollout_steps).run
    if part != "rollout":
        parts["update_s"] = products.update
    found: dict[str, list[float]] = {name: [] for name in parts}
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s or not all(found.values()):
        for name, run in parts.items():
            found[name].append(run())
    env.close()
    return {name: statistics.median(values) for name, values in found.items()}


def main(argv: Sequence[str]) -> None:
    """See the module docstring."""
    part, seconds, threads, algo, task, *overrides = argv
    if part not in PARTS:
        raise SystemExit(f"train_bound: part {part}: expected one of {', '.join(PARTS)}")
    config = compose(algo, task, "mujoco", overrides)
    print(json.dumps(measure(config, task, part, float(seconds), int(threads))))


if __name__ == "__main__":
    main(sys.argv[1:])
