"""What one iteration of PPO or APPO must cost here: physics and matrix products, nothing else.

    python -m unilab_core.tools.bench.train_bound PART SECONDS THREADS POLICY ALGO TASK [KEY=VALUE]

``rollout``  T steps of the batch stepper (the calls alone), and T forward passes of the policy on E
             rows. POLICY, a `policy.pt`, moves the robots
             with its own spread: a robot that stands has contacts that a fallen one has not and
             costs a fifth more, so a bound has to see the states of the training beside it.
``update``   one forward pass of the value function on the rollout (APPO: and of the target policy),
             then epochs times minibatches of forward and backward passes of both networks at the
             size of a minibatch; no losses, no optimiser, no copies. With more than one thread this
             is timed in both ways there are: all threads for each product, as torch does it, and
             both networks at once with half of them each (docs/adr/0020).
``both``     one after the other.

Prints one JSON object with the median seconds of each part, and of the two halves of a rollout.
THREADS are those of the role.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from unilab_core.config.compose import compose
from unilab_core.config.config import Config
from unilab_core.config.on_policy import OnPolicyConfig
from unilab_core.envs import make_env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.nets.gaussian import GaussianPolicy, ValueNet
from unilab_core.nets.policy_file import Policy, load_policy
from unilab_core.nets.policy_spec import policy_spec

PARTS = ("rollout", "update", "both")
WARM_UP_TICKS = 200
"""As long as it takes until the robots are at different places of their episodes."""


class Products:
    """Both networks of a configuration on rows of noise."""

    def __init__(
        self,
        algo: OnPolicyConfig,
        obs_width: int,
        critic_width: int,
        action_width: int,
        num_threads: int,
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
        rows = algo.num_envs * algo.rollout_steps
        self._size = rows // algo.num_mini_batches
        self._obs = torch.randn(rows, obs_width)
        self._critic_obs = torch.randn(rows + algo.num_envs, critic_width)
        self._num_threads = num_threads
        self._second = None
        if num_threads > 1:
            self._second = ThreadPoolExecutor(
                1, initializer=torch.set_num_threads, initargs=(num_threads // 2,)
            )

    @torch.inference_mode()
    def forward(self) -> None:
        """The forward pass of one tick."""
        self._policy.of_scaled(self._obs[: self._algo.num_envs])

    def update(self) -> dict[str, float]:
        """Seconds of the passes that one iteration learns with."""
        alternating_s = self._seconds(None)
        found = {"update_s": alternating_s, "update_at_once_s": alternating_s}
        if self._second is not None:
            torch.set_num_threads(self._num_threads // 2)
            found["update_at_once_s"] = self._seconds(self._second)
            torch.set_num_threads(self._num_threads)
        return found

    def _seconds(self, second: ThreadPoolExecutor | None) -> float:
        start_s = time.perf_counter()
        with torch.inference_mode():
            self._value.of_scaled(self._critic_obs)
            if self._algo.algo == "appo":
                self._policy.of_scaled(self._obs)
        for _ in range(self._algo.num_learning_epochs * self._algo.num_mini_batches):
            if second is None:
                self._value_pass()
                self._policy_pass()
                continue
            beside = second.submit(self._value_pass)
            self._policy_pass()
            beside.result()
        return time.perf_counter() - start_s

    def _policy_pass(self) -> None:
        mean, _ = self._policy.of_scaled(self._obs[: self._size])
        torch.autograd.grad(mean.sum(), list(self._policy.net.parameters()))

    def _value_pass(self) -> None:
        values = self._value.of_scaled(self._critic_obs[: self._size])
        torch.autograd.grad(values.sum(), list(self._value.net.parameters()))


class Rollout:
    """The physics of a rollout and the forward passes beside it."""

    def __init__(
        self, env: ManagerBasedEnv, policy: Policy, products: Products, num_steps: int
    ) -> None:
        actor = policy.module.actor
        assert isinstance(actor, GaussianPolicy)
        self._env = env
        self._policy = policy
        self._std = actor.log_std.detach().exp().numpy()
        self._products = products
        self._num_steps = num_steps
        self._noise = np.random.default_rng(0)
        self._obs = env.reset().obs
        for _ in range(WARM_UP_TICKS):
            self._step()

    def run(self) -> dict[str, float]:
        """Seconds of one rollout's physics and of its products."""
        physics_ns = forward_ns = 0
        for _ in range(self._num_steps):
            self._step()
            physics_ns += self._env.timings_ns["backend"]
            start_ns = time.perf_counter_ns()
            self._products.forward()
            forward_ns += time.perf_counter_ns() - start_ns
        return {
            "rollout_s": (physics_ns + forward_ns) / 1e9,
            "physics_s": physics_ns / 1e9,
            "forward_s": forward_ns / 1e9,
        }

    def _step(self) -> None:
        actions = self._policy.act(self._obs)
        noise = self._noise.standard_normal(actions.shape, dtype=np.float32)
        self._obs = self._env.step(actions + self._std * noise).obs


def measure(
    config: Config, task: str, part: str, seconds: float, threads: int, policy: Policy
) -> dict[str, float]:
    """Median seconds of each part, as often as fits into ``seconds``."""
    algo = config.algo
    assert isinstance(algo, OnPolicyConfig)
    torch.set_num_threads(threads)
    sim = config.training.sim_backend
    env = make_env(task, sim, config.env, num_envs=algo.num_envs, seed=1, num_threads=threads)
    assert isinstance(env, ManagerBasedEnv)
    spec = env.spec
    products = Products(algo, spec.obs_width, spec.critic_obs_width, spec.action_width, threads)
    parts: list[Callable[[], dict[str, float]]] = []
    if part != "update":
        parts.append(Rollout(env, policy, products, algo.rollout_steps).run)
    if part != "rollout":
        parts.append(products.update)
    found: dict[str, list[float]] = {}
    end_s = time.monotonic() + seconds
    while not found or time.monotonic() < end_s:
        for run in parts:
            for name, value in run().items():
                found.setdefault(name, []).append(value)
    env.close()
    return {name: statistics.median(values) for name, values in found.items()}


def main(argv: Sequence[str]) -> None:
    """See the module docstring."""
    part, seconds, threads, policy, algo, task, *overrides = argv
    if part not in PARTS:
        raise SystemExit(f"train_bound: part {part}: expected one of {', '.join(PARTS)}")
    config = compose(algo, task, "mujoco", overrides)
    found = measure(config, task, part, float(seconds), int(threads), load_policy(Path(policy)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
