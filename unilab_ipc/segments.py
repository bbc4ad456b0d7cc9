"""All segment tables. What each field means, who alone may write it, and how large it is.

Symbols: E environments, O policy observation width, C critic observation width, A action width,
R transition rows in the inference slot (0 off-policy, E for PPO), L log entries (0 off-policy),
D slots, T steps of a rollout, P policy parameters, B bytes of a metric ring, N heartbeat rows.

Words that start at -1 are sequence numbers; -1 means "none yet".
"""

from unilab_ipc.layout import Field, Layout


def _word(name: str, writer: str, doc: str, initial: int = 0) -> Field:
    return Field(name, "<i8", (), writer, doc, line=True, initial=initial)


def _row(name: str, doc: str) -> Field:
    return Field(name, "<i8", ("N",), "the row's role", doc, line=True)


HEARTBEAT = Layout(
    "heartbeat",
    1,
    (
        _word("stop_level", "launcher", "0 run, 1 finish the iteration and save, 2 leave unsaved"),
        _row("run_id", "run id (8 hex digits as a number) of the registered process"),
        _row("pid", "process id, 0 before registration"),
        _row("start_ticks", "start time of the process in clock ticks since boot"),
        _row("state", "index into STATES: missing, alive, ended, stopped, failed"),
        _row("phase", "index into PHASES"),
        _row("awaits", "0, or 1 + index into ROLES of the role this one waits for"),
        _row("progress", "counts useful steps; standing still is a hang unless awaits is set"),
        _row("beat_ns", "monotonic time of the last sign of life"),
        _row("iteration", "finished iterations"),
        _row("env_steps", "transitions so far"),
        _row("signal", "last termination signal this process received, 0 = none"),
    ),
)

METRIC_QUEUE = Layout(
    "metric_queue",
    1,
    (
        _word("oldest_cursor", "writer", "byte cursor of the oldest record still whole"),
        _word("cursor", "writer", "byte cursor behind the newest record; never wraps"),
        _word("written_count", "writer", "records written"),
        _word("dropped_count", "writer", "records refused: too large or not packable"),
        Field("data", "u1", ("B",), "writer", "framed records; byte k lives at k modulo B"),
    ),
)

INFERENCE_SLOT = Layout(
    "inference_slot",
    2,
    (
        _word("request_seq", "collector", "newest published request", initial=-1),
        _word("consumed_seq", "collector", "newest answer the collector has taken", initial=-1),
        _word("response_seq", "learner", "newest answered request", initial=-1),
        _word("policy_version", "learner", "policy that produced the actions", initial=-1),
        _word("closed", "learner", "1 = no further answers"),
        Field("obs", "<f4", ("E", "O"), "collector", "policy observations"),
        Field("critic_obs", "<f4", ("E", "C"), "collector", "critic observations"),
        Field("done", "u1", ("E",), "collector", "episode ended in the step that led here"),
        Field("reward", "<f4", ("R",), "collector", "reward of that step (PPO)"),
        Field("terminated", "u1", ("R",), "collector", "ended in a terminal state (PPO)"),
        Field("truncated", "u1", ("R",), "collector", "ended by the time limit (PPO)"),
        Field("dropped", "u1", ("R",), "collector", "not to be learned from (PPO)"),
        Field("final_obs", "<f4", ("R", "O"), "collector", "last observations of ended rows"),
        Field("final_critic_obs", "<f4", ("R", "C"), "collector", "same, critic group"),
        Field("log", "<f4", ("L",), "collector", "log values in the order of EnvSpec.log_keys"),
        Field("actions", "<f4", ("E", "A"), "learner", "actions that answer the request"),
    ),
)


def _ring_words(writer: str, reader: str, item: str) -> tuple[Field, ...]:
    return (
        _word("published_count", writer, f"{item} committed"),
        _word("high_water", writer, "largest occupancy seen after a commit"),
        _word("backpressure_waits", writer, "waits for a free slot longer than zero"),
        _word("backpressure_wait_ns", writer, "time spent in them"),
        _word("closed_returns", writer, f"{item} given up because the reader closed"),
        _word("stop_returns", writer, f"{item} given up because of a stop"),
        _word("released_count", reader, f"{item} consumed"),
        _word("closed", reader, "1 = the reader takes nothing more"),
        Field("seq", "<i8", ("D",), writer, "sequence number in the slot", line=True, initial=-1),
        Field(
            "checksum", "<i8", ("D",), writer, "CRC-32 of the payload, -1 = none", True, initial=-1
        ),
    )


REPLAY_INGRESS = Layout(
    "replay_ingress",
    2,
    (
        *_ring_words("collector", "learner", "vector ticks"),
        Field("obs", "<f4", ("D", "E", "O"), "collector", "observations before the step"),
        Field("critic_obs", "<f4", ("D", "E", "C"), "collector", "same, critic group"),
        Field("action", "<f4", ("D", "E", "A"), "collector", "actions applied"),
        Field("reward", "<f4", ("D", "E"), "collector", "rewards"),
        Field("terminated", "u1", ("D", "E"), "collector", "ended in a terminal state"),
        Field("truncated", "u1", ("D", "E"), "collector", "ended by the time limit"),
        Field("dropped", "u1", ("D", "E"), "collector", "not to be learned from"),
        Field("next_obs", "<f4", ("D", "E", "O"), "collector", "true next observations"),
        Field("next_critic_obs", "<f4", ("D", "E", "C"), "collector", "same, critic group"),
    ),
)

ROLLOUT_RING = Layout(
    "rollout_ring",
    2,
    (
        *_ring_words("collector", "learner", "rollouts"),
        Field(
            "policy_version", "<i8", ("D",), "collector", "behaviour policy", line=True, initial=-1
        ),
        Field(
            "normaliser_version",
            "<i8",
            ("D",),
            "collector",
            "observation normaliser that scaled the behaviour policy's input",
            line=True,
            initial=-1,
        ),
        Field("obs", "<f4", ("D", "T1", "E", "O"), "collector", "observations, T1 = T + 1"),
        Field("critic_obs", "<f4", ("D", "T1", "E", "C"), "collector", "same, critic group"),
        Field("actions", "<f4", ("D", "T", "E", "A"), "collector", "actions applied"),
        Field("log_prob", "<f4", ("D", "T", "E"), "collector", "log-probability of the actions"),
        Field("mean", "<f4", ("D", "T", "E", "A"), "collector", "means of the behaviour policy"),
        Field("std", "<f4", ("D", "A"), "collector", "standard deviations of the behaviour policy"),
        Field("reward", "<f4", ("D", "T", "E"), "collector", "rewards"),
        Field("terminated", "u1", ("D", "T", "E"), "collector", "ended in a terminal state"),
        Field("truncated", "u1", ("D", "T", "E"), "collector", "ended by the time limit"),
        Field("dropped", "u1", ("D", "T", "E"), "collector", "not to be learned from"),
        Field(
            "final_critic_obs",
            "<f4",
            ("D", "T", "E", "C"),
            "collector",
            "last critic observations; rows valid where the episode ended",
        ),
    ),
)

POLICY_SNAPSHOT = Layout(
    "policy_snapshot",
    1,
    (
        _word("newest_seq", "learner", "newest complete publication", initial=-1),
        Field("cell_seq", "<i8", (2,), "learner", "publication in the cell", True, initial=-1),
        Field("cell_version", "<i8", (2,), "learner", "policy version in the cell", True, -1),
        Field("cell_normaliser", "<i8", (2,), "learner", "normaliser version", True, -1),
        Field(
            "cell_checksum",
            "<i8",
            (2,),
            "learner",
            "sum over the cell and its stamp",
            True,
            initial=-1,
        ),
        Field("values", "<f4", (2, "P"), "learner", "flat parameters"),
    ),
)

SEGMENTS = (
    HEARTBEAT,
    METRIC_QUEUE,
    INFERENCE_SLOT,
    REPLAY_INGRESS,
    ROLLOUT_RING,
    POLICY_SNAPSHOT,
)


def render() -> str:
    """Documentation of every table, as markdown."""
    return "\n\n".join(layout.render() for layout in SEGMENTS) + "\n"
