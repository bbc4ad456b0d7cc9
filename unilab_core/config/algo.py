"""The `algo` section: what every algorithm has, what off-policy ones have, and SAC.

Every number comes from conf/<algo>/config.yaml and the layers above it; the classes below declare
the keys, their meaning and their limits; only refinements that are off by default have a default.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

ALGO_NAMES = ("ppo", "appo", "sac", "flashsac")
"""Names on the command line; each has a folder of the same name under conf/ once it is there."""

Overlap = Literal["never", "partly", "always"]


@dataclass(kw_only=True, slots=True, frozen=True)
class AlgoConfig:
    """Keys that all algorithms share."""

    uses_replay: ClassVar[bool] = False
    overlap: ClassVar[Overlap] = "partly"
    """How much the work of the two roles overlaps in time."""

    algo: str
    """Name on the command line."""
    algo_log_name: str
    """First folder under the log root."""
    preset: str
    """Named set of settings of this algorithm; explicit overrides still win."""
    seed: int
    """Root of every random stream; each role and rank derives its own."""
    num_envs: int
    """Environments per rank."""
    max_iterations: int
    """Iterations after which training is complete."""
    save_interval: int
    """Iterations between two checkpoints."""
    gamma: float
    """Discount per environment step."""
    load_run: int | str
    """Run directory to load from; -1 is the newest run of the same algorithm and task."""
    checkpoint: int | str
    """Checkpoint inside that run: an iteration, a file name, or -1 for the newest."""
    resume: bool
    """Continue from `load_run` and `checkpoint` instead of from new weights."""

    def __post_init__(self) -> None:
        """Limits that hold for every algorithm."""
        require(self.seed >= 0, "seed", self.seed, "an integer >= 0")
        for name in ("num_envs", "max_iterations", "save_interval"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        require(0.0 <= self.gamma < 1.0, "gamma", self.gamma, "a number in [0, 1)")


@dataclass(kw_only=True, slots=True, frozen=True)
class OffPolicyConfig(AlgoConfig):
    """What SAC and FlashSAC share: the replay, the rhythm of updates, the value distribution."""

    uses_replay: ClassVar[bool] = True

    batch_size: int
    """Transitions per update, over all environments of the rank."""
    replay_buffer_n: int
    """Rows kept per environment; the capacity is this times `num_envs`."""
    replay_restart_tick: int = 0
    """Vector step at which all earlier rows are dropped, for a curriculum that changes the rewards
    there; 0 never."""
    replay_restart_fill: int = 0
    """Vector steps without updates after that: the first rows alone are a few moments of every
    environment, and networks that learn from nothing else forget the rest."""
    updates_per_step: int
    """Critic updates per vector step."""
    learning_starts: int
    """Vector steps of random actions before the first update."""
    policy_frequency: int
    """Critic updates per actor update."""
    tau: float
    """Share of the online weights that each target update takes over."""
    actor_lr: float
    """Learning rate of the actor."""
    critic_lr: float
    """Learning rate of the critics."""
    lr_end: float = 0.0
    """Learning rate that the others fall to; 0 keeps them constant."""
    lr_decay_steps: int = 1
    """Updates over which they fall."""
    alpha_lr: float
    """Learning rate of the temperature; 0 keeps it at `alpha_init`."""
    alpha_init: float
    """Temperature at the start."""
    num_atoms: int
    """Atoms of the value distribution."""
    v_min: float
    """Lowest atom, in discounted return."""
    v_max: float
    """Highest atom, in discounted return."""
    symmetry_augmentation: bool = False
    """Train on the left/right mirror image of every second row (the task must have one)."""
    policy_ema: float = 0.0
    """Share of the past that the exported policy keeps per update: `policy.pt` holds the running
    mean of the actor's weights; 0 exports the actor itself. Acting is not affected."""
    max_grad_norm: float
    """Gradient norm that each update is clipped to; 0 switches clipping off."""
    n_step: int
    """Rewards summed before bootstrapping."""
    age_decay: float
    """Preference for new rows when sampling: the weight of a row falls linearly with its age, from
    1 to 1 - age_decay at the oldest, but not below .1; 0 is uniform, below 0 prefers old rows."""

    def __post_init__(self) -> None:
        """Limits of the shared keys."""
        # slots=True makes a new class object, which zero-argument super() would miss.
        AlgoConfig.__post_init__(self)
        for name in ("batch_size", "replay_buffer_n", "updates_per_step", "policy_frequency",
                     "num_atoms", "n_step", "lr_decay_steps"):  # fmt: skip
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        for name in ("learning_starts", "replay_restart_tick", "replay_restart_fill"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "an integer >= 0")
        require(0.0 < self.tau <= 1.0, "tau", self.tau, "a number in (0, 1]")
        for name in ("actor_lr", "critic_lr", "alpha_init"):
            require(getattr(self, name) > 0.0, name, getattr(self, name), "a number > 0")
        for name in ("alpha_lr", "lr_end", "max_grad_norm"):
            require(getattr(self, name) >= 0.0, name, getattr(self, name), "a number >= 0")
        require(0.0 <= self.policy_ema < 1.0, "policy_ema", self.policy_ema, "a number in [0, 1)")
        require(self.v_min < self.v_max, "v_min", self.v_min, f"less than v_max = {self.v_max}")


@dataclass(kw_only=True, slots=True, frozen=True)
class SacConfig(OffPolicyConfig):
    """SAC with distributional critics (`preset: fast`) or scalar ones (`preset: classic`).

    Its learning rates fall linearly, and only those of actor and critics; one atom makes the
    critics scalar.
    """

    algo: Literal["sac"]
    preset: Literal["fast", "classic"]
    """`fast`: distributional or scalar critics with LayerNorm, mean of the critics; `classic`:
    two scalar ReLU critics, minimum of the two, as the well-known small-task implementations."""
    target_entropy_ratio: float
    """The target entropy is minus this times the number of actions, in nats."""
    actor_hidden_dim: int | tuple[int, ...]
    """Width of the first hidden layer (the next ones halve it), or all widths as a list."""
    critic_hidden_dim: int | tuple[int, ...]
    """As `actor_hidden_dim`, for each of the two critics."""
    use_layer_norm: bool
    """LayerNorm after each hidden linear layer."""
    activation: Literal["silu", "relu", "elu", "tanh"] = "silu"
    """Of the hidden layers. On a CPU relu costs a fifth of silu, forwards and backwards."""
    obs_normalization: bool
    """Running mean and variance of the observations, saved with the policy."""

    def __post_init__(self) -> None:
        """Limits of SAC's own keys."""
        OffPolicyConfig.__post_init__(self)
        for name in ("actor_hidden_dim", "critic_hidden_dim"):
            widths = getattr(self, name)
            positive = widths >= 1 if isinstance(widths, int) else min(widths, default=0) >= 1
            require(positive, name, widths, "a width >= 1, or a list of such widths")


def require(holds: bool, name: str, got: object, expected: str) -> None:
    """A check of a section's `__post_init__`: name, got, expected."""
    if not holds:
        raise ValueError(f"{name}: got {got!r}, expected {expected}")
