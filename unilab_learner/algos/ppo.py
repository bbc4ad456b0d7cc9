"""PPO: rsl-rl-lib's algorithm, models and storage, assembled from our configuration.

The library's runner is not used: it can be neither stopped, timed nor saved atomically, and it asks
git about its own sources. What this file adds to the library:

    r_t <- r_t + gamma V(final critic observation)    on rows that the time limit cut

The library's own time-out term bootstraps from V(s_t), the state *before* the last step. Folding
the true one into the reward leaves its recursion, which stops at every `done`, as it is.

The standard deviation is learned as its logarithm, as in APPO. Adam moves every parameter by about
the learning rate, so a plain standard deviation of .1 would move ten times as fast, in proportion,
as one of 1: exploration ended before the robot had learned to stay upright.

The observation normalisers are the library's: frozen while a rollout is collected and learned
from, updated with the whole rollout after the epochs.

Legend: T steps, E environments, O observation, C critic observation, A action.
"""

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from rsl_rl.modules import EmpiricalNormalization
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor

from unilab_core.config.on_policy import PpoConfig
from unilab_core.config.on_policy_preset import PRESETS, OnPolicyPreset
from unilab_core.nets.gaussian import GaussianPolicy, orthogonal_init
from unilab_core.nets.policy_spec import policy_spec
from unilab_core.nets.rsl_rl_weights import gaussian_weights
from unilab_learner.algos.side_by_side_ppo import SideBySidePPO

POLICY, CRITIC = "policy", "critic"
"""Names of the observation groups in every TensorDict."""

_GROUPS = {"actor": [POLICY], "critic": [CRITIC]}


def build_ppo(
    cfg: PpoConfig,
    *,
    obs_width: int,
    critic_obs_width: int,
    action_width: int,
    device: torch.device,
    use_amp: bool = False,
) -> SideBySidePPO:
    """Build models, storage and algorithm; `torch.manual_seed` first for repeatable weights.

    On a CPU each network learns with half of the threads that torch has now.
    """
    preset = PRESETS[cfg.preset]
    sample = observations(
        torch.zeros(cfg.num_envs, obs_width, device=device),
        torch.zeros(cfg.num_envs, critic_obs_width, device=device),
    )
    distribution = {
        "class_name": "GaussianDistribution",
        "init_std": cfg.init_std,
        "std_type": "log",
    }
    actor = _model(sample, "actor", action_width, cfg, preset, distribution)
    critic = _model(sample, "critic", 1, cfg, preset, None)
    storage = RolloutStorage(
        "rl", cfg.num_envs, cfg.num_steps_per_env, sample, [action_width], str(device)
    )
    algorithm = SideBySidePPO(
        actor,
        critic,
        storage,
        num_learning_epochs=cfg.num_learning_epochs,
        num_mini_batches=cfg.num_mini_batches,
        clip_param=cfg.clip_param,
        gamma=cfg.gamma,
        lam=cfg.lam,
        value_loss_coef=cfg.value_loss_coef,
        entropy_coef=cfg.entropy_coef,
        learning_rate=cfg.learning_rate,
        max_grad_norm=cfg.max_grad_norm,
        use_clipped_value_loss=cfg.use_clipped_value_loss,
        schedule=cfg.schedule,
        desired_kl=cfg.desired_kl,
        normalize_advantage_per_mini_batch=preset.advantages_per_minibatch,
        use_mixed_precision=use_amp,
        device=str(device),
    )
    algorithm.use_optimizer(eps=preset.adam_eps)
    algorithm.train_mode()
    return algorithm


def observations(obs: Tensor, critic_obs: Tensor) -> TensorDict:
    """obs[E, O] and critic_obs[E, C] as the library's observation groups."""
    return TensorDict({POLICY: obs, CRITIC: critic_obs}, batch_size=[obs.shape[0]])


@torch.inference_mode()
def add_final_values(
    algorithm: PPO, reward: Tensor, rows: Tensor, final_critic_obs: Tensor
) -> Tensor:
    """reward[E] with gamma V(final) added at rows[F] that the time limit cut.

    Args:
        algorithm: gives the value function and gamma.
        reward: [E]; not changed.
        rows: [F] environments whose episode was truncated (not terminated) in this step.
        final_critic_obs: [F, C] their true last critic observations.
    """
    if rows.numel() == 0:
        return reward
    final = TensorDict({CRITIC: final_critic_obs}, batch_size=[rows.numel()])
    return reward.index_add(0, rows, algorithm.gamma * algorithm.critic(final).squeeze(-1))


@torch.inference_mode()
def replace_rows(storage: RolloutStorage, dropped: list[tuple[int, Tensor]]) -> None:
    """Put a copy of another row in the place of each dropped one, returns and advantages included.

    The library knows no masks, so a placeholder cannot be left out of its minibatches; a transition
    that counts twice is the smaller evil. The other row is the next environment's of the same
    step, or where that was dropped too, the next in turn.

    Args:
        storage: a full rollout with its returns.
        dropped: step and environments[F] of the placeholders.
    """
    bad = torch.zeros(storage.num_transitions_per_env, storage.num_envs, dtype=torch.bool)
    for step, envs in dropped:
        bad[step, envs.cpu()] = True
    good = torch.nonzero(~bad.flatten()).squeeze(-1)
    if good.numel() == 0:
        return
    rows = torch.nonzero(bad.flatten()).squeeze(-1)
    at = torch.searchsorted(good, rows) % good.numel()
    rows, sources = rows.to(storage.device), good[at].to(storage.device)
    columns = (
        storage.actions,
        storage.values,
        storage.returns,
        storage.advantages,
        storage.actions_log_prob,
        *(storage.distribution_params or ()),
        *storage.observations.values(),
    )
    for column in columns:
        flat = column.flatten(0, 1)
        flat[rows] = flat[sources]


def export_policy(algorithm: PPO, cfg: PpoConfig) -> GaussianPolicy:
    """The acting half as our own module, for `policy.pt`."""
    actor = algorithm.get_policy()
    assert actor.distribution is not None
    spec = policy_spec(cfg, obs_width=actor.obs_dim, action_width=actor.distribution.output_dim)
    policy = GaussianPolicy(spec)
    policy.load_state_dict(gaussian_weights(actor.state_dict()))
    return policy


class ClippedNormalization(EmpiricalNormalization):
    """The library's normaliser with its output limited to [-limit, limit]."""

    def __init__(self, width: int, limit: float) -> None:
        super().__init__(width)
        self._limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """Normalise and clip x[..., O]."""
        return super().forward(x).clamp(-self._limit, self._limit)


def _model(
    sample: TensorDict,
    name: str,
    width: int,
    cfg: PpoConfig,
    preset: OnPolicyPreset,
    distribution: dict | None,
) -> MLPModel:
    model = MLPModel(
        sample,
        _GROUPS,
        name,
        width,
        hidden_dims=cfg.hidden_dims,
        activation="swish" if cfg.activation == "silu" else cfg.activation,
        obs_normalization=cfg.obs_normalization,
        distribution_cfg=distribution,
    )
    if cfg.obs_normalization and preset.obs_clip > 0.0:
        model.obs_normalizer = ClippedNormalization(model.obs_dim, preset.obs_clip)
    if preset.orthogonal_init:
        head_gain = preset.policy_head_gain if distribution else preset.value_head_gain
        orthogonal_init(model.mlp, head_gain)
    return model
