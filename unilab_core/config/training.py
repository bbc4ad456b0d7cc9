"""The `training` section: everything about a run that is neither algorithm nor environment.

The defaults live here, because they are the same for every algorithm; a conf file names a key only
where it differs.
"""

from dataclasses import dataclass, field
from typing import Literal

from unilab_core.config.algo import require


@dataclass(kw_only=True, slots=True, frozen=True)
class NanGuardConfig:
    """What happens to values that are not finite, at the three places where they could enter."""

    enabled: bool = True
    """Check observations, rewards, actions and losses; off only to measure what the checks cost."""
    policy: Literal["stop", "drop_episode"] = "stop"
    """`stop` ends the job (exit 12) naming source, environment and step; `drop_episode` resets that
    environment, drops the transition and counts it."""
    max_drop_frac: float = 0.001
    """Share of the transitions of the last 1000 vector steps that `drop_episode` may drop; more
    (and more than one) end the job: it is not a rare accident any more."""
    max_abs_value: float = 1e8
    """A reward or an observation beyond this is as useless as infinity: its square overflows."""
    buffer_size: int = 100
    """Last vector steps kept for the dump; fewer where they would take more than 64 MiB."""
    max_envs_to_dump: int = 5
    """Environments written into the dump."""
    output_dir: str | None = None
    """Folder of the dump; null is `nan_guard/` in the run directory."""

    def __post_init__(self) -> None:
        """Limits."""
        frac, limit = self.max_drop_frac, self.max_abs_value
        require(0.0 <= frac <= 1.0, "max_drop_frac", frac, "a share from 0 to 1")
        require(0.0 < limit <= 1e15, "max_abs_value", limit, "a number > 0, at most 1e15")
        require(self.buffer_size >= 1, "buffer_size", self.buffer_size, "an integer >= 1")
        require(
            self.max_envs_to_dump >= 1, "max_envs_to_dump", self.max_envs_to_dump, "an integer >= 1"
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class TorchThreadsConfig:
    """CPU threads of each role: two processes with all cores each would halve the speed."""

    enabled: bool = True
    """Divide the cores between the roles; false leaves every library at its own default."""
    learner_num_threads: int | Literal["auto"] = "auto"
    """Threads of matrix products in the learner."""
    collector_num_threads: int | Literal["auto"] = "auto"
    """Threads of the physics in the collector."""
    learner_num_interop_threads: int = 1
    """torch's inter-operator pool; one, because there is one stream of work."""
    set_env_vars: bool = True
    """Set OMP_NUM_THREADS and the like for the children, OMP_WAIT_POLICY=PASSIVE included, and keep
    the learner's freed memory in the process (MALLOC_TRIM_THRESHOLD_)."""

    def __post_init__(self) -> None:
        """Limits."""
        for name in ("learner_num_threads", "collector_num_threads", "learner_num_interop_threads"):
            got = getattr(self, name)
            require(got == "auto" or got >= 1, name, got, "an integer >= 1")


@dataclass(kw_only=True, slots=True, frozen=True)
class TrainingConfig:
    """One run."""

    task_name: str
    """Task, as on the command line."""
    sim_backend: str
    """Physics backend, as on the command line."""
    device: str = "auto"
    """`auto` (CUDA where there is one, else CPU), `cpu`, `cuda`, `cuda:N` or `mps`."""

    log_root: str | None = None
    """Folder under which runs are filed; null is `logs` in the working directory."""
    log_dir: str | None = None
    """The run directory itself, instead of a dated one under `log_root`."""
    logger: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    """Where scalars are kept besides the monitors."""
    log_interval: int = 1
    """Iterations between two records; the last iteration is always recorded."""

    max_wall_time_s: float | None = None
    """Training ends as completed after this long; null is without a limit."""
    env_steps_per_sync: int = 1
    """Vector steps per learner iteration."""
    collector_metrics_interval: int = 1
    """Vector steps between two collector reports."""
    replay_ingress_depth: int = 2
    """Vector ticks that may wait between collector and replay."""
    checkpoint_interval_s: float | None = None
    """Also save a checkpoint this often, whatever the iteration; null: only by `save_interval`."""
    policy_interval_s: float | None = None
    """Export `policies/policy_<seconds>.pt` on this clock, for an evaluation afterwards."""
    no_play: bool = False
    """Skip the video after a completed training."""
    play_steps: int = 500
    """Control steps of that video."""
    play_env_num: int = 1
    """Environments in that video: robots on one ground, or windows side by side for `gym:`."""
    export_onnx: bool = True
    """Write `policy.onnx` beside `policy.pt` at the end (needs the extra `onnx`)."""

    rl_trace: bool = False
    """Write the progress, sample and trajectory streams under `rl_trace/` (docs/rl-trace.md)."""
    rl_trace_every: int = 64
    """Environments per traced one."""
    trace_enabled: bool = False
    """Record a Perfetto timeline under `trace/`."""
    trace_output_dir: str | None = None
    """Folder of that timeline; null is `trace/` in the run directory."""
    trace_thread_time: bool = False
    """Add CPU time per slice to the timeline."""
    trace_cuda_events: bool = True
    """Add device time to the timeline where the learner runs on CUDA."""

    wandb_project: str | None = None
    """Weights & Biases project; null is `unilab`."""
    wandb_entity: str | None = None
    """Weights & Biases user or team."""
    wandb_group: str | None = None
    """Group of runs."""
    wandb_job_type: str | None = None
    """Kind of run within the group."""
    wandb_name: str | None = None
    """Display name; null is the job's name."""
    wandb_tags: tuple[str, ...] = ()
    """Tags."""
    wandb_notes: str | None = None
    """Free text."""
    wandb_mode: Literal["online", "offline", "disabled"] | None = None
    """null leaves the choice to the environment variable of the client."""

    nan_guard: NanGuardConfig = field(default_factory=NanGuardConfig)
    """Values that are not finite."""
    torch_threads: TorchThreadsConfig = field(default_factory=TorchThreadsConfig)
    """CPU threads of each role."""

    warn_after_s: float = 10.0
    """A role without progress for this long is reported."""
    hang_after_s: float = 60.0
    """A role without progress for this long ends the job (exit 13)."""
    startup_hang_after_s: float = 600.0
    """The same while it starts or compiles."""
    grace_s: float = 3.0
    """Between the request to leave and SIGKILL."""
    max_env_exceptions: int = 0
    """Exceptions of the environment that are survived by resetting all of it, each dropping one
    vector step, counted; 0: the first one ends the job (exit 11)."""
    stop_grace_s: float = 8.0
    """Whole time for a stop after SIGTERM or SIGHUP, the last checkpoint included."""

    use_amp: bool | Literal["auto"] = "auto"
    """bf16 autocast; `auto` asks the device whether it is worth it."""
    use_compile: bool | Literal["auto"] = "auto"
    """torch.compile of the update; `auto` is off on CPU."""
    cuda_process_sharing: Literal["mps"] | None = None
    """Ask for CUDA MPS between collector and learner."""

    def __post_init__(self) -> None:
        """Limits."""
        for name in (
            "log_interval",
            "env_steps_per_sync",
            "collector_metrics_interval",
            "replay_ingress_depth",
            "play_steps",
            "play_env_num",
            "rl_trace_every",
        ):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        got = self.max_env_exceptions
        require(got >= 0, "max_env_exceptions", got, "an integer >= 0")
        for name in ("max_wall_time_s", "checkpoint_interval_s", "policy_interval_s"):
            got = getattr(self, name)
            require(got is None or got > 0.0, name, got, "a number > 0, or null")
        for name in ("warn_after_s", "hang_after_s", "startup_hang_after_s", "grace_s"):
            require(getattr(self, name) > 0.0, name, getattr(self, name), "a number > 0")
        require(
            self.stop_grace_s >= self.grace_s,
            "stop_grace_s",
            self.stop_grace_s,
            f"at least grace_s = {self.grace_s}",
        )
        base, _, index = self.device.partition(":")
        known = base in ("auto", "cpu", "cuda", "mps") and (not index or base == "cuda")
        good = known and (index.isdigit() or self.device == base)
        require(good, "device", self.device, "auto, cpu, cuda, cuda:N or mps")
