"""The library's PPO with its two networks learning at the same time.

The losses of policy and value function share no parameter, and the library clips their gradients
apart:

    L_pi = mean( max(-A r, -A clip(r, 1 - eps, 1 + eps)) ) - c_ent H      actor
    L_v  = c_v mean( max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2) )   critic

So on a CPU with more than one thread each network takes half of them for a minibatch instead of
all for every product: a product of 1536 x 128 rows is too small to be worth two threads (two cores:
14 ms per minibatch as the library does it, 10 ms side by side). The steps of both wait for the KL
divergence, which drives the learning rate. Small networks are left to one thread: there the two
would mostly wait for each other.

The numbers are the library's (`tests/unilab_learner/algos/test_side_by_side_ppo.py` compares them).
What costs time and changes none of them is left out:

* rows are put in the order of the minibatches once, not per epoch, which all share one order;
* observations are scaled once, because the normalisers stand still during the epochs;
* no actions are drawn from the new policy;
* the losses are differentiated by hand down to the networks' outputs (below), autograd does the
  networks: the rows have twelve columns there, and fifty small operations cost more than a product;
* values of a rollout are computed at its end in one pass, not tick by tick;
* gradients and parameters are one vector per network, so a step is one kernel.

With z = (a - mean) / std, and a ratio counted where the clipped branch does not win:

    dL_pi / dmean    = -A r [counted] z / std / M
    dL_pi / dlog_std = sum_M( -A r [counted] (z^2 - 1) / M ) - c_ent
    dL_v / dV        = c_v 2 (V - R) / M          where the plain error is the larger one, else
                       c_v 2 (V_clipped - R) / M  where V has not left the clip range, else 0

While it collects, a transition may be stored after the next actions are on their way: `act` and
`process_env_step` meet in a queue.

Legend: B rows of the rollout, M rows of a minibatch, E environments, F some of them, O observation,
C critic observation; in shapes A action, in formulas A advantage, V value, R return, r ratio.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.modules.distribution import GaussianDistribution
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor

from unilab_core.nets.gaussian import entropy, kl_divergence, log_prob
from unilab_learner.losses.guarded_adam import flatten_parameters

LR_MIN, LR_MAX, LR_FACTOR = 1e-5, 1e-2, 1.5
"""The library's adaptive schedule: the rate moves by the factor when KL leaves [d / 2, 2 d]."""
ADVANTAGE_EPS = 1e-8
MIN_PRODUCTS = 4_000_000
"""Multiplications of one forward pass from which a second thread pays: about half a millisecond."""
CLIP_EPS = 1e-6
"""Of torch's `clip_grad_norm_`."""


@dataclass(kw_only=True, slots=True)
class PolicyRows:
    """What the policy learns from."""

    latent: Tensor
    """[B, O] scaled observations"""
    actions: Tensor
    """[B, A]"""
    log_prob: Tensor
    """[B] of the actions when they were taken"""
    mean: Tensor
    """[B, A] of the policy then"""
    advantages: Tensor
    """[B]"""


@dataclass(kw_only=True, slots=True)
class ValueRows:
    """What the value function learns from."""

    latent: Tensor
    """[B, C] scaled critic observations"""
    values: Tensor
    """[B] as estimated when the rollout ended"""
    returns: Tensor
    """[B]"""


class SideBySidePPO(PPO):
    """PPO whose `update` learns actor and critic at once, on a CPU in two threads.

    Feed-forward Gaussian actors with a learned logarithm of the standard deviation, one device, no
    intrinsic reward and no symmetry. `use_optimizer` once, before anything else.
    """

    def use_optimizer(self, *, eps: float) -> None:
        """Adam (arXiv 1412.6980) over one vector per network, in one fused kernel."""
        unknown = (self.rnd, self.symmetry, self.is_multi_gpu or None)
        assert unknown == (None, None, None), "not part of this update"
        self._acted: deque[RolloutStorage.Transition] = deque()
        distribution = self.actor.distribution
        assert isinstance(distribution, GaussianDistribution), "the actor is no Gaussian"
        self._log_std = distribution.get_parameter("log_std_param")
        self._log_std_limits = distribution.log_std_range
        self._params = [list(net.mlp.parameters()) for net in (self.actor, self.critic)]
        # The spread last: its gradient is not autograd's.
        self._flats = [
            torch.nn.Parameter(flatten_parameters([*self._params[0], self._log_std])),
            torch.nn.Parameter(flatten_parameters(self._params[1])),
        ]
        self.optimizer = torch.optim.Adam(self._flats, lr=self.learning_rate, eps=eps, fused=True)
        self._second: ThreadPoolExecutor | None = None
        self._num_threads = torch.get_num_threads()
        size = self.storage.num_envs * self.storage.num_transitions_per_env // self.num_mini_batches
        is_worth_it = size * self._flats[1].numel() >= MIN_PRODUCTS
        if torch.device(self.device).type == "cpu" and self._num_threads > 1 and is_worth_it:
            self._second = ThreadPoolExecutor(
                1, "critic", initializer=torch.set_num_threads, initargs=(self._num_threads // 2,)
            )

    @torch.inference_mode()
    def act(self, obs: TensorDict) -> Tensor:
        """Draw actions[E, A] and queue what will be stored with them, but no values."""
        transition = RolloutStorage.Transition()
        actor = self.actor
        mean = actor.mlp(actor.get_latent(obs))
        std = self._std()
        actions = mean + std * torch.randn_like(mean)
        transition.actions = actions
        transition.values = mean.new_zeros(mean.shape[0], 1)  # see `compute_returns`
        transition.distribution_params = (mean, std.expand_as(mean))
        transition.observations = obs
        self._acted.append(transition)
        return actions

    @torch.inference_mode()
    def process_env_step(
        self, obs: TensorDict, rewards: Tensor, dones: Tensor, extras: dict[str, Tensor]
    ) -> None:
        """Store what followed the oldest `act` that is not stored yet."""
        transition = self._acted.popleft()
        actions, params = transition.actions, transition.distribution_params
        assert actions is not None, "act fills them"
        assert params is not None, "act fills them"
        # Here and not in `act`: nobody waits for it.
        transition.actions_log_prob = log_prob(actions, params[0], params[1][0])
        self.transition = transition
        super().process_env_step(obs, rewards, dones, extras)

    @torch.inference_mode()
    def values_of(self, rows: Tensor) -> Tensor:
        """Values[F] of the states of environments rows[F] at the oldest `act` not stored yet."""
        observations = self._acted[0].observations
        assert observations is not None, "act queues observations"
        return self.critic(observations[rows]).squeeze(-1)

    @torch.inference_mode()
    def compute_returns(self, obs: TensorDict) -> None:
        """Values of the whole rollout, then its returns and advantages."""
        assert not self._acted, "a transition was acted but not stored"
        stored = self.storage
        values = self.critic(stored.observations.flatten(0, 1))
        stored.values.copy_(values.view_as(stored.values))
        super().compute_returns(obs)

    def update(self) -> dict[str, float]:
        """Run the epochs over the stored rollout and return the mean losses."""
        policy, value, old_std = self._rows()
        totals = torch.zeros(3, device=self.device)
        num_steps = self.num_learning_epochs * self.num_mini_batches
        if self._second is not None:  # which has the other half
            torch.set_num_threads(self._num_threads - self._num_threads // 2)
        try:
            for step in range(num_steps):
                totals += self._step(policy, value, old_std, step % self.num_mini_batches)
        finally:
            if self._second is not None:
                torch.set_num_threads(self._num_threads)
        observations = self.storage.observations.flatten(0, 1)
        self.actor.update_normalization(observations)
        self.critic.update_normalization(observations)
        self.storage.clear()
        return dict(
            zip(("value", "surrogate", "entropy"), (totals / num_steps).tolist(), strict=True)
        )

    def _step(
        self, policy: PolicyRows, value: ValueRows, old_std: Tensor, minibatch: int
    ) -> Tensor:
        """One optimiser step of both networks; value loss, surrogate loss and entropy, [3]."""
        size = policy.actions.shape[0] // self.num_mini_batches
        part = slice(minibatch * size, (minibatch + 1) * size)
        critic = self._beside(lambda: self._critic_gradient(value, part))
        surrogate, spread, kl = self._actor_gradient(policy, old_std, part)
        value_term = critic.result()
        if self.schedule == "adaptive" and self.desired_kl is not None:
            self._adapt(kl.item())
        self.optimizer.step()
        return torch.stack([value_term, surrogate, spread])

    @torch.no_grad()
    def mean_std(self) -> Tensor:
        """Mean standard deviation of the policy, []."""
        return self._std().mean()

    def _rows(self) -> tuple[PolicyRows, ValueRows, Tensor]:
        """The rollout in the order of the minibatches; and the policy's std[A] when it acted."""
        stored = self.storage
        params = stored.distribution_params
        assert params is not None, "update before act"
        num_rows = stored.num_envs * stored.num_transitions_per_env
        used = num_rows // self.num_mini_batches * self.num_mini_batches
        order = torch.randperm(used, device=self.device)
        observations = stored.observations.flatten(0, 1)

        def flat(rows: Tensor) -> Tensor:
            return rows.flatten(0, 1)[order]

        with torch.no_grad():
            policy = PolicyRows(
                latent=self.actor.get_latent(observations)[order],
                actions=flat(stored.actions),
                log_prob=flat(stored.actions_log_prob).squeeze(-1),
                mean=flat(params[0]),
                advantages=flat(stored.advantages).squeeze(-1),
            )
            value = ValueRows(
                latent=self.critic.get_latent(observations)[order],
                values=flat(stored.values).squeeze(-1),
                returns=flat(stored.returns).squeeze(-1),
            )
        return policy, value, params[1][0, 0]

    def _beside(self, work: Callable[[], Tensor]) -> Future[Tensor]:
        """Start `work` in the second thread; without one it is done when this returns."""
        if self._second is not None:
            return self._second.submit(work)
        done: Future[Tensor] = Future()
        done.set_result(work())
        return done

    def _actor_gradient(
        self, rows: PolicyRows, old_std: Tensor, part: slice
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set the policy's gradient; surrogate loss, entropy and KL(old || new) of the rows."""
        with self._autocast():
            out = self.actor.mlp(rows.latent[part])
        with torch.no_grad():
            mean, std = out.float(), self._std()
            advantages = rows.advantages[part]
            if self.normalize_advantage_per_mini_batch:
                advantages = (advantages - advantages.mean()) / (advantages.std() + ADVANTAGE_EPS)
            actions = rows.actions[part]
            ratio = (log_prob(actions, mean, std) - rows.log_prob[part]).exp()
            plain = advantages * ratio
            clipped = advantages * ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
            surrogate = -torch.minimum(plain, clipped).mean()
            # A product and not a choice: an infinite ratio has to show in the gradient.
            weight = plain * (plain <= clipped) / -plain.numel()
            z = (actions - mean) / std
            by_mean = weight.unsqueeze(-1) * z
            by_log_std = (by_mean * z).sum(dim=0) - weight.sum() - self.entropy_coef
            by_log_std *= self._log_std == self._log_std.clamp(*self._log_std_limits)
            kl = kl_divergence(rows.mean[part], old_std, mean, std).mean()
            spread = entropy(std)
        self._backward(0, out, by_mean / std, by_log_std)
        return surrogate, spread, kl

    def _critic_gradient(self, rows: ValueRows, part: slice) -> Tensor:
        """Set the value function's gradient; the value loss of the rows."""
        with self._autocast():
            out = self.critic.mlp(rows.latent[part])
        with torch.no_grad():
            values = out.float().squeeze(-1)
            error = values - rows.returns[part]
            loss = error.square()
            slope = error
            if self.use_clipped_value_loss:
                moved = values - rows.values[part]
                limited = moved.clamp(-self.clip_param, self.clip_param)
                clipped_error = error - moved + limited
                clipped_loss = clipped_error.square()
                inside = clipped_error * (moved == limited)
                slope = torch.where(loss >= clipped_loss, slope, inside)
                loss = torch.maximum(loss, clipped_loss)
            by_value = slope * (2.0 * self.value_loss_coef / slope.numel())
        self._backward(1, out, by_value.unsqueeze(-1))
        return loss.mean()

    def _backward(self, network: int, out: Tensor, by_out: Tensor, *by_more: Tensor) -> None:
        """Gradient of one network from that of its output, clipped to `max_grad_norm`."""
        grads = torch.autograd.grad(out, self._params[network], by_out.to(out.dtype))
        grad = torch.cat([part.reshape(-1) for part in (*grads, *by_more)])
        norm = torch.linalg.vector_norm(grad)
        self._flats[network].grad = grad * (self.max_grad_norm / (norm + CLIP_EPS)).clamp(max=1.0)

    def _adapt(self, kl: float) -> None:
        desired_kl = self.desired_kl
        if kl > desired_kl * 2.0:
            set_learning_rate(self, max(LR_MIN, self.learning_rate / LR_FACTOR))
        elif 0.0 < kl < desired_kl / 2.0:
            set_learning_rate(self, min(LR_MAX, self.learning_rate * LR_FACTOR))

    def _std(self) -> Tensor:
        """[A] as the library's distribution limits it."""
        return self._log_std.clamp(*self._log_std_limits).exp()

    def _autocast(self) -> torch.autocast:
        kind = torch.device(self.device).type
        return torch.autocast(kind, torch.bfloat16, enabled=self.use_mixed_precision)


def set_learning_rate(algorithm: PPO, learning_rate: float) -> None:
    """Set the rate in force (the library adapts it by itself under `schedule: adaptive`)."""
    algorithm.learning_rate = learning_rate
    for group in algorithm.optimizer.param_groups:
        group["lr"] = learning_rate
