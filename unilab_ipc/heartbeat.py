"""The heartbeat board: who is alive, in which phase, waiting for whom, how far.

One row per (role, rank), written by that role alone; the launcher also writes the stop level. A
hang is told from a long phase by `progress`: a row that neither advances nor awaits another role
stands still. Readers copy words one by one, so a row is a set of recent values, not one instant;
identity (pid, start ticks) is stored before `state` becomes `alive`.

# SYNC POINT: registered (state stored last in `register`, read first in `row`)
# SYNC POINT: stop (`request_stop` stores the level, the launcher then rings every bell)

Rows: launcher 0, then collector and learner of each rank: 1 + 2 * ranks.
"""

import os
from dataclasses import dataclass

from unilab_ipc.clock import Clock, MonotonicClock
from unilab_ipc.errors import IpcError
from unilab_ipc.memory import Segment
from unilab_ipc.names import parse_segment_name
from unilab_ipc.peers import Peer, process_start_ticks

ROLES = ("launcher", "collector", "learner")
STATES = ("missing", "alive", "ended", "stopped", "failed")

STOP_NONE, STOP_SAVE, STOP_NOW = 0, 1, 2

PHASES = (
    "startup/begin",
    "startup/memory_budget",
    "startup/cuda_preflight",
    "startup/replay_resources",
    "startup/inference_resources",
    "startup/logger",
    "startup/dp_init",
    "startup/learner_prepare",
    "startup/collector_start",
    "startup/env_build",
    "startup/wait_job",
    "startup/wait_env_spec",
    "startup/attach",
    "startup/resume_load",
    "startup/compose",
    "startup/create_segments",
    "startup/spawn",
    "startup/compile",
    "training/startup_complete",
    "training/wait_for_inference_request",
    "training/learner_inference",
    "training/inference_response",
    "training/replay_prepare",
    "training/learner_update",
    "training/wait_for_rollout",
    "training/rollout_stage",
    "training/rollout_sample",
    "training/weight_publish",
    "training/checkpoint",
    "training/inference_request",
    "training/learner_action_wait",
    "training/env_step",
    "training/replay_write",
    "training/replay_wait",
    "training/metrics_publish",
    "training/rollout",
    "training/rollout_wait",
    "training/mlp_infer",
    "training/weight_fetch",
    "training/supervise",
    "finalize/begin",
    "finalize/collector_quiesce",
    "finalize/collector_metrics_drain",
    "finalize/replay_pipeline_close",
    "finalize/replay_ingress_snapshot",
    "finalize/logger_finish",
    "finalize/checkpoint",
    "finalize/env_close",
    "finalize/stop_children",
    "finalize/summary",
    "finalize/cleanup",
    "ended",
)

_PHASE_CODE = {name: code for code, name in enumerate(PHASES)}
_ROLE_CODE = {name: code for code, name in enumerate(ROLES)}
_STATE_CODE = {name: code for code, name in enumerate(STATES)}


@dataclass(slots=True, frozen=True)
class RoleStatus:
    """One row, decoded. `phase` and `state` read "unknown" for codes we do not know."""

    role: str
    rank: int
    pid: int
    start_ticks: int
    phase: str
    awaits: str | None
    progress: int
    beat_ns: int
    iteration: int
    env_steps: int
    signal: int
    state: str

    def peer(self) -> Peer:
        """The registered process, not opened yet."""
        return Peer(self.role, self.rank, self.pid, self.start_ticks)


def board_dims(ranks: int) -> dict[str, int]:
    """Geometry of the board of a job with `ranks` collector/learner pairs."""
    if ranks < 1:
        raise ValueError(f"ranks must be >= 1, got {ranks}")
    return {"N": 1 + 2 * ranks}


class HeartbeatBoard:
    """Reading side of the board, and the source of each role's writing side."""

    __slots__ = ("_clock", "_segment")

    def __init__(self, segment: Segment, clock: Clock | None = None) -> None:
        self._segment = segment
        self._clock = clock if clock is not None else MonotonicClock()

    def role(self, role: str, rank: int) -> "RoleBeat":
        """The writer of one row; only the role itself may take it."""
        return RoleBeat(self._segment, role, self._index(role, rank), self._clock)

    def rows(self) -> list[RoleStatus]:
        """All rows, launcher first, also those nobody registered (`missing`)."""
        count = self._segment.dims["N"]
        return [self._decode(index) for index in range(count)]

    def row(self, role: str, rank: int) -> RoleStatus:
        """One row."""
        return self._decode(self._index(role, rank))

    def stop_level(self) -> int:
        """0 run, 1 finish the iteration and save, 2 leave without saving."""
        # SYNC POINT: stop
        return max(STOP_NONE, min(STOP_NOW, int(self._segment.view["stop_level"][()])))

    def _index(self, role: str, rank: int) -> int:
        if role not in _ROLE_CODE:
            raise ValueError(f"role must be one of {ROLES}, got {role!r}")
        ranks = (self._segment.dims["N"] - 1) // 2
        limit = 1 if role == "launcher" else ranks
        if not 0 <= rank < limit:
            raise ValueError(f"{role} rank must be in [0, {limit}), got {rank}")
        return 0 if role == "launcher" else 1 + 2 * rank + (_ROLE_CODE[role] - 1)

    def _decode(self, index: int) -> RoleStatus:
        view = self._segment.view
        # SYNC POINT: registered
        state = _name(STATES, int(view["state"][index]))
        awaits = int(view["awaits"][index])
        return RoleStatus(
            role=ROLES[0 if index == 0 else 1 + (index - 1) % 2],
            rank=0 if index == 0 else (index - 1) // 2,
            pid=int(view["pid"][index]),
            start_ticks=int(view["start_ticks"][index]),
            phase=_name(PHASES, int(view["phase"][index])),
            awaits=ROLES[awaits - 1] if 1 <= awaits <= len(ROLES) else None,
            progress=int(view["progress"][index]),
            beat_ns=int(view["beat_ns"][index]),
            iteration=int(view["iteration"][index]),
            env_steps=int(view["env_steps"][index]),
            signal=int(view["signal"][index]),
            state=state,
        )


class RoleBeat:
    """Writing side of one row."""

    __slots__ = (
        "_awaits",
        "_beat_ns",
        "_clock",
        "_phase",
        "_progress",
        "_role",
        "_row",
        "_segment",
    )

    def __init__(self, segment: Segment, role: str, row: int, clock: Clock) -> None:
        view = segment.view
        self._segment = segment
        self._role = role
        self._row = row
        self._clock = clock
        # One-element views: the three words that change in every tick are stored without lookups.
        self._phase = view["phase"][row : row + 1]
        self._awaits = view["awaits"][row : row + 1]
        self._progress = view["progress"][row : row + 1]
        self._beat_ns = view["beat_ns"][row : row + 1]

    def register(self, pid: int | None = None) -> None:
        """Publish this process's identity (or, with `pid`, that of a process we started)."""
        pid = os.getpid() if pid is None else pid
        ticks = process_start_ticks(pid)
        if ticks is None:
            raise IpcError(f"{self._role}: no process {pid} to register")
        name = parse_segment_name(self._segment.name)
        self._store("run_id", 0 if name is None else int(name.run_id, 16))
        self._store("pid", pid)
        self._store("start_ticks", ticks)
        self.beat()
        # SYNC POINT: registered
        self._store("state", _STATE_CODE["alive"])

    def phase(self, name: str, awaits: str | None = None) -> None:
        """Enter a phase; `awaits` is the role this one waits for in it."""
        code = _PHASE_CODE.get(name)
        if code is None:
            raise ValueError(f"phase must be one of heartbeat.PHASES, got {name!r}")
        self._phase[0] = code
        self._awaits[0] = 0 if awaits is None else _role_code(awaits)
        self._beat_ns[0] = self._clock.now_ns()

    def awaiting(self, awaits: str | None) -> int:
        """Set only the awaited role (None leaves it); returns the word for `restore_awaits`."""
        before = int(self._awaits[0])
        if awaits is not None:
            self._awaits[0] = _role_code(awaits)
        self._beat_ns[0] = self._clock.now_ns()
        return before

    def restore_awaits(self, before: int) -> None:
        """Put back what `awaiting` returned."""
        self._awaits[0] = before

    def advance(self) -> None:
        """One useful step was done."""
        self._progress[0] += 1
        self._beat_ns[0] = self._clock.now_ns()

    def beat(self) -> None:
        """Alive, though nothing was finished."""
        self._beat_ns[0] = self._clock.now_ns()

    def counts(self, iteration: int, env_steps: int) -> None:
        """Publish the counters that monitors and the soak tool follow."""
        self._store("iteration", iteration)
        self._store("env_steps", env_steps)

    def report_signal(self, signum: int) -> None:
        """Tell the launcher that this process received a termination signal."""
        self._store("signal", signum)

    def end(self, state: str = "ended") -> None:
        """Last word of a role: `ended`, `stopped` or `failed`."""
        if state not in _STATE_CODE:
            raise ValueError(f"state must be one of {STATES}, got {state!r}")
        self._phase[0] = _PHASE_CODE["ended"]
        self._awaits[0] = 0
        self.beat()
        self._store("state", _STATE_CODE[state])

    def request_stop(self, level: int) -> None:
        """Raise the stop level (launcher only; never lowered). Ring every bell afterwards."""
        if self._role != "launcher":
            raise IpcError(f"only the launcher may request a stop, not the {self._role}")
        if not STOP_NONE <= level <= STOP_NOW:
            raise ValueError(f"stop level must be 0, 1 or 2, got {level}")
        word = self._segment.view["stop_level"]
        # SYNC POINT: stop
        word[()] = max(level, int(word[()]))

    def _store(self, field: str, value: int) -> None:
        self._segment.view[field][self._row] = value


def _role_code(role: str) -> int:
    code = _ROLE_CODE.get(role)
    if code is None:
        raise ValueError(f"awaits must be one of {ROLES}, got {role!r}")
    return 1 + code


def _name(table: tuple[str, ...], code: int) -> str:
    return table[code] if 0 <= code < len(table) else "unknown"
