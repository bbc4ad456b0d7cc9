"""The library's PPO with its two networks learning at the same time.

The losses of policy and value function share no parameter, and the library clips their gradients
apart:

    L_pi = mean( max(-A r, -A clip(r, 1 - eps, 1 + eps)) ) - c_ent H      actor
    L_v  = c_v mean( max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2) )   critic

So on a CPU each network takes one thread of its own for a minibatch instead of both threads for
every product: a product of 1536 x 128 rows is too small to be worth two threads (two cores: 14 ms
per minibatch as the library does it, 10 ms side by side). The steps of both wait for the KL
divergence, which drives the learning rate.

The numbers are the library's (`tests/unilab_learner/algos/test_side_by_side_ppo.py` compares them).
What costs time and changes none of them is left out:

* rows are put in the order of the minibatches once, not per epoch, which all share one order;
* observations are scaled once, because the normalisers stand still during the epochs;
* no actions are drawn from the new policy, and a Gaussian's formulas are written out;
* values of a rollout are computed at its end in one pass, not tick by tick;
* gradients and parameters are one vector per network, so a step is one kernel.

Legend: B rows of the rollout, M rows of a minibatch, O observation, C critic observation, A action.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.modules.distribution import GaussianDistribution
from tensordict import TensorDict
from torch import Tensor

from unilab_core.nets.gaussian import entropy, kl_divergence, log_prob
from unilab_learner.algos.appo import surrogate_loss, value_loss
from unilab_learner.losses.guarded_adam import flatten_parameters

LR_MIN, LR_MAX, LR_FACTOR = 1e-5, 1e-2, 1.5
"""The library's adaptive schedule: the rate moves by the factor when KL leaves [d / 2, 2 d]."""
ADVANTAGE_EPS = 1e-8
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
    intrinsic reward and no symmetry. `use_optimizer` once before the first `update`.
    """

    def use_optimizer(self, *, eps: float) -> None:
        """Adam (arXiv 1412.6980) over one vector per network, in one fused kernel."""
        self._params = [list(net.parameters()) for net in (self.actor, self.critic)]
        self._flats = [torch.nn.Parameter(flatten_parameters(params)) for params in self._params]
        self.optimizer = torch.optim.Adam(self._flats, lr=self.learning_rate, eps=eps, fused=True)
        distribution = self.actor.distribution
        assert isinstance(distribution, GaussianDistribution), "the actor is no Gaussian"
        self._log_std = distribution.get_parameter("log_std_param")
        self._log_std_limits = distribution.log_std_range
        self._second: ThreadPoolExecutor | None = None
        threads = torch.get_num_threads()
        if torch.device(self.device).type == "cpu" and threads > 1:
            # Each network's products get half of the threads, in the acting policy too.
            torch.set_num_threads(threads // 2)
            self._second = ThreadPoolExecutor(
                1, "critic", initializer=torch.set_num_threads, initargs=(threads // 2,)
            )

    def act(self, obs: TensorDict) -> Tensor:
        """Draw actions[E, A] and remember what will be stored with them, but no values."""
        transition = self.transition
        actor = self.actor
        mean = actor.mlp(actor.get_latent(obs))
        std = self._std()
        actions = mean + std * torch.randn_like(mean)
        transition.hidden_states = (None, None)
        transition.actions = actions
        transition.values = mean.new_zeros(mean.shape[0], 1)  # see `compute_returns`
        transition.actions_log_prob = log_prob(actions, mean, std)
        transition.distribution_params = (mean, std.expand_as(mean))
        transition.observations = obs
        return actions

    def values_of(self, rows: Tensor) -> Tensor:
        """Values[F] of the states that environments rows[F] have just acted in."""
        observations = self.transition.observations
        assert observations is not None, "values_of before act"
        return self.critic(observations[rows]).squeeze(-1)

    def compute_returns(self, obs: TensorDict) -> None:
        """Values of the whole rollout, then its returns and advantages."""
        stored = self.storage
        values = self.critic(stored.observations.flatten(0, 1))
        stored.values.copy_(values.view_as(stored.values))
        super().compute_returns(obs)

    def update(self) -> dict[str, float]:
        """Run the epochs over the stored rollout and return the mean losses."""
        policy, value, old_std = self._rows()
        size = policy.actions.shape[0] // self.num_mini_batches
        totals = torch.zeros(3)
        num_steps = self.num_learning_epochs * self.num_mini_batches
        for step in range(num_steps):
            start = step % self.num_mini_batches * size
            part = slice(start, start + size)
            critic = self._beside(lambda part=part: self._critic_gradient(value, part))
            surrogate, spread, kl = self._actor_gradient(policy, old_std, part)
            value_term = critic.result()
            if self.schedule == "adaptive" and self.desired_kl is not None:
                self._adapt(kl.item())
            self.optimizer.step()
            totals += torch.stack([value_term, surrogate, spread]).cpu()
        observations = self.storage.observations.flatten(0, 1)
        self.actor.update_normalization(observations)
        self.critic.update_normalization(observations)
        self.storage.clear()
        return dict(
            zip(("value", "surrogate", "entropy"), (totals / num_steps).tolist(), strict=True)
        )

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
            mean = self.actor.mlp(rows.latent[part]).float()
        std = self._std()
        advantages = rows.advantages[part]
        if self.normalize_advantage_per_mini_batch:
            advantages = (advantages - advantages.mean()) / (advantages.std() + ADVANTAGE_EPS)
        ratio = (log_prob(rows.actions[part], mean, std) - rows.log_prob[part]).exp()
        surrogate = surrogate_loss(ratio, advantages, self.clip_param)
        spread = entropy(std)
        self._differentiate(0, surrogate - self.entropy_coef * spread)
        with torch.no_grad():
            kl = kl_divergence(rows.mean[part], old_std, mean, std).mean()
        return surrogate.detach(), spread.detach(), kl

    def _critic_gradient(self, rows: ValueRows, part: slice) -> Tensor:
        """Set the value function's gradient; the value loss of the rows."""
        with self._autocast():
            values = self.critic.mlp(rows.latent[part]).float().squeeze(-1)
        clip = self.clip_param if self.use_clipped_value_loss else None
        loss = value_loss(values, rows.values[part], rows.returns[part], clip)
        self._differentiate(1, self.value_loss_coef * loss)
        return loss.detach()

    def _differentiate(self, network: int, loss: Tensor) -> None:
        grads = torch.autograd.grad(loss, self._params[network])
        grad = torch.cat([part.reshape(-1) for part in grads])
        norm = torch.linalg.vector_norm(grad)
        self._flats[network].grad = grad * (self.max_grad_norm / (norm + CLIP_EPS)).clamp(max=1.0)

    def _adapt(self, kl: float) -> None:
        desired_kl = self.desired_kl
        if kl > desired_kl * 2.0:
            self.learning_rate = max(LR_MIN, self.learning_rate / LR_FACTOR)
        elif 0.0 < kl < desired_kl / 2.0:
            self.learning_rate = min(LR_MAX, self.learning_rate * LR_FACTOR)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate

    def _std(self) -> Tensor:
        """[A] as the library's distribution limits it."""
        return self._log_std.clamp(*self._log_std_limits).exp()

    def _autocast(self) -> torch.autocast:
        kind = torch.device(self.device).type
        return torch.autocast(kind, torch.bfloat16, enabled=self.use_mixed_precision)
