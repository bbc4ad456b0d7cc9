"""The `algo` section of PPO and APPO.

Every number comes from conf/{ppo,appo}/config.yaml and the layers above it (see algo.py).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unilab_core.config.algo import AlgoConfig, Overlap, require


@dataclass(kw_only=True, slots=True, frozen=True)
class OnPolicyConfig(AlgoConfig):
    """What both on-policy algorithms learn with."""

    preset: Literal["default", "gym"]
    """`default`: as locomotion stacks train; `gym`: orthogonal initial weights, advantages
    normalised per minibatch, rewards scaled by the spread of returns, observations clipped."""
    num_learning_epochs: int
    """Passes over the rollout per iteration."""
    num_mini_batches: int
    """Optimiser steps per pass."""
    learning_rate: float
    """Learning rate at the start, of policy and value function alike."""
    schedule: Literal["adaptive", "linear", "fixed"]
    """`adaptive` follows `desired_kl`; `linear` falls to 0 at `max_iterations`."""
    desired_kl: float
    """KL per update, in nats, that `adaptive` aims for."""
    clip_param: float
    """Half width of the interval the probability ratio is clipped to, and of value changes."""
    entropy_coef: float
    """Weight of the entropy bonus."""
    value_loss_coef: float
    """Weight of the value loss."""
    use_clipped_value_loss: bool
    """Limit how far a value may move from the old one within an iteration."""
    lam: float
    """Lambda of the advantage estimator (PPO) or of the trace (APPO)."""
    max_grad_norm: float
    """Gradient norm that each step is clipped to; 0 switches clipping off (APPO)."""
    init_std: float
    """Standard deviation of the policy at the start, in action units."""
    obs_normalization: bool
    """Running mean and variance of both observation groups, frozen within an iteration."""
    hidden_dims: tuple[int, ...]
    """Hidden widths of policy and value function alike."""
    activation: Literal["elu", "relu", "silu", "tanh"]
    """Activation of the hidden layers."""

    def __post_init__(self) -> None:
        """Limits of the on-policy keys."""
        AlgoConfig.__post_init__(self)
        for name in ("num_learning_epochs", "num_mini_batches"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        for name in ("learning_rate", "desired_kl", "clip_param", "init_std"):
            require(getattr(self, name) > 0.0, name, getattr(self, name), "a number > 0")
        for name in ("entropy_coef", "value_loss_coef", "max_grad_norm"):
            require(getattr(self, name) >= 0.0, name, getattr(self, name), "a number >= 0")
        require(0.0 <= self.lam <= 1.0, "lam", self.lam, "a number in [0, 1]")
        positive = min(self.hidden_dims, default=0) >= 1
        require(positive, "hidden_dims", self.hidden_dims, "a list of widths >= 1")

    @property
    def rollout_steps(self) -> int:
        """T, vector steps per rollout, whatever the algorithm's key is called."""
        raise NotImplementedError

    def require_full_batches(self) -> None:
        """Every minibatch has at least one row."""
        rows = self.num_envs * self.rollout_steps
        fits = self.num_mini_batches <= rows
        require(
            fits, "num_mini_batches", self.num_mini_batches, f"at most {rows} (rows per rollout)"
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class PpoConfig(OnPolicyConfig):
    """PPO of rsl-rl-lib; the collector and the learner take turns."""

    overlap: ClassVar[Overlap] = "never"

    algo: Literal["ppo"]
    num_steps_per_env: int
    """Vector steps per iteration."""

    def __post_init__(self) -> None:
        """Limits."""
        OnPolicyConfig.__post_init__(self)
        got = self.num_steps_per_env
        require(got >= 1, "num_steps_per_env", got, "an integer >= 1")
        require(self.max_grad_norm > 0.0, "max_grad_norm", self.max_grad_norm, "a number > 0")
        self.require_full_batches()

    @property
    def rollout_steps(self) -> int:
        """T."""
        return self.num_steps_per_env


@dataclass(kw_only=True, slots=True, frozen=True)
class AppoConfig(OnPolicyConfig):
    """Asynchronous PPO: the collector acts on its own with the newest published policy."""

    overlap: ClassVar[Overlap] = "always"

    algo: Literal["appo"]
    steps_per_env: int
    """Vector steps per rollout."""
    tau: float
    """Share of the online policy that each update of the target policy takes over."""
    target_update_freq: int
    """Iterations between two updates of the target policy."""
    vtrace_clip_rho: float
    """Limit of the importance ratio in the value targets and advantages."""
    vtrace_clip_c: float
    """Limit of the importance ratio along the trace."""
    vtrace_advantage: Literal["one_step", "mixed"]
    """`one_step` as in the paper; `mixed` also weighs the advantages by lambda."""
    max_policy_lag: int
    """Versions a rollout's policy may be behind the learner; older ones are dropped, counted."""
    ring_slots: int
    """Finished rollouts that may wait for the learner."""
    replay_queue_size: int
    """Newest rollouts that each iteration trains on."""

    def __post_init__(self) -> None:
        """Limits."""
        OnPolicyConfig.__post_init__(self)
        for name in ("steps_per_env", "target_update_freq", "ring_slots", "replay_queue_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        require(0.0 < self.tau <= 1.0, "tau", self.tau, "a number in (0, 1]")
        for name in ("vtrace_clip_rho", "vtrace_clip_c"):
            require(getattr(self, name) > 0.0, name, getattr(self, name), "a number > 0")
        least = self.ring_slots + self.target_update_freq
        require(
            self.max_policy_lag >= least,
            "max_policy_lag",
            self.max_policy_lag,
            f"at least {least} (ring_slots + target_update_freq), or full rings are thrown away",
        )
        self.require_full_batches()

    @property
    def rollout_steps(self) -> int:
        """T."""
        return self.steps_per_env
