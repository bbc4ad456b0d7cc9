"""Who stands still. Pure: board rows and a clock in, findings out.

A role shows life by its progress counter or by entering another phase. A role that waits for
another one may stand still for a good reason, so the chain of waits is followed to its end, and
only that role is reported:

    collector awaits learner, learner still  ->  the learner is reported
    collector awaits learner, learner busy   ->  nothing
    collector awaits learner awaits collector, both still  ->  a deadlock; the first one is reported
    learner awaits launcher, job not yet attachable        ->  the launcher waits for the collector
    collector awaits launcher, job attachable long since   ->  the collector is reported
    learner awaits collector, which has left               ->  the learner is reported

Time counts only while the launcher itself runs: after a suspend or on a starved host the watchdog
must not take its own pause for a standstill of the others.
"""

from dataclasses import dataclass

from unilab_ipc.clock import Clock
from unilab_ipc.heartbeat import RoleStatus

MAX_STEP_NS = 1_500_000_000
"""More than this between two looks is the launcher's own pause."""

Key = tuple[str, int]


@dataclass(kw_only=True, slots=True, frozen=True)
class HangLimits:
    """Seconds without progress."""

    warn_after_s: float
    hang_after_s: float
    startup_hang_after_s: float

    def of_phase(self, phase: str) -> float:
        """Starting and compiling may take long without a sign of progress."""
        return self.startup_hang_after_s if _is_slow(phase) else self.hang_after_s

    def warn_of_phase(self, phase: str) -> float:
        """Importing and building for a while is nothing to report."""
        if _is_slow(phase):
            return max(self.warn_after_s, self.startup_hang_after_s / 10.0)
        return self.warn_after_s


@dataclass(kw_only=True, slots=True, frozen=True)
class Finding:
    """What to say about one role."""

    kind: str
    """`warn` (once per standstill), `resumed` or `hang`."""
    role: str
    rank: int
    still_s: float
    phase: str
    waiting: tuple[str, ...] = ()
    """Roles that wait for this one, directly or through others."""
    deadlock: bool = False


@dataclass(slots=True)
class _Watched:
    sign: tuple[int, str] = (-1, "")
    since_ns: int = 0
    warned_since_ns: int | None = None


class HangWatch:
    """Follows the rows of one job."""

    def __init__(self, limits: HangLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._last_ns = clock.now_ns()
        self._watch_ns = 0
        self._watched: dict[Key, _Watched] = {}
        self._launcher_ready = False

    def launcher_ready(self) -> None:
        """The job is attachable: from here on nobody waits for the launcher for a good reason."""
        self._launcher_ready = True
        for watched in self._watched.values():
            watched.since_ns = self._watch_ns

    def look(self, rows: list[RoleStatus]) -> list[Finding]:
        """Compare the rows of the living children with what was seen before."""
        now_ns = self._clock.now_ns()
        self._watch_ns += min(max(now_ns - self._last_ns, 0), MAX_STEP_NS)
        self._last_ns = now_ns
        by_key = {(row.role, row.rank): row for row in rows}
        findings = [finding for row in rows for finding in self._note(row)]
        culprits: dict[Key, Finding] = {}
        for row in rows:
            finding = self._follow(row, by_key)
            if finding is None:
                continue
            known = culprits.get((finding.role, finding.rank))
            if known is None or len(known.waiting) < len(finding.waiting):
                culprits[finding.role, finding.rank] = finding
        for key, finding in culprits.items():
            watched = self._watched[key]
            if finding.kind == "hang":
                findings.append(finding)
            elif watched.warned_since_ns is None:
                watched.warned_since_ns = watched.since_ns
                findings.append(finding)
        return findings

    def pardon(self, keys: list[Key]) -> None:
        """Start counting again for these roles: a debugger holds one of them."""
        for key in keys:
            watched = self._watched[key]
            watched.since_ns, watched.warned_since_ns = self._watch_ns, None

    def _note(self, row: RoleStatus) -> list[Finding]:
        """Remember a sign of life; tell when a role that was warned about goes on."""
        watched = self._watched.setdefault((row.role, row.rank), _Watched())
        sign = (row.progress, row.phase)
        if sign == watched.sign:
            return []
        warned_since_ns, watched.warned_since_ns = watched.warned_since_ns, None
        watched.sign, watched.since_ns = sign, self._watch_ns
        if warned_since_ns is None:
            return []
        still_s = (self._watch_ns - warned_since_ns) / 1e9
        return [
            Finding(kind="resumed", role=row.role, rank=row.rank, still_s=still_s, phase=row.phase)
        ]

    def _follow(self, start: RoleStatus, by_key: dict[Key, RoleStatus]) -> Finding | None:
        """From a role that stands still along `awaits` to the one that holds everybody up."""
        chain: list[RoleStatus] = []
        row: RoleStatus | None = start
        while row is not None and row not in chain:
            if self._still_s(row) < self._limits.warn_of_phase(row.phase):
                return None  # somebody along the chain is busy: the others wait for a good reason
            chain.append(row)
            if row.awaits is None or (row.awaits == "launcher" and self._launcher_ready):
                return self._finding(row, chain[:-1], deadlock=False)
            # Before the job is attachable the launcher itself waits for the collector.
            awaited = "collector" if row.awaits == "launcher" else row.awaits
            if awaited == row.role:
                return None
            row = by_key.get((awaited, row.rank))
        if row is None:
            if chain[-1].awaits == "launcher":
                return None  # children are still being started
            # The awaited role has left, which is not what the last of the chain still waits for: a
            # collector leaves before the learner has closed its files.
            return self._finding(chain[-1], chain[:-1], deadlock=False)
        return self._finding(row, [other for other in chain if other is not row], deadlock=True)

    def _finding(self, row: RoleStatus, waiting: list[RoleStatus], *, deadlock: bool) -> Finding:
        still_s = self._still_s(row)
        kind = "hang" if still_s >= self._limits.of_phase(row.phase) else "warn"
        return Finding(
            kind=kind,
            role=row.role,
            rank=row.rank,
            still_s=still_s,
            phase=row.phase,
            waiting=tuple(f"{other.role}-{other.rank}" for other in waiting),
            deadlock=deadlock,
        )

    def _still_s(self, row: RoleStatus) -> float:
        return (self._watch_ns - self._watched[row.role, row.rank].since_ns) / 1e9


def _is_slow(phase: str) -> bool:
    return phase.startswith("startup/") or "compile" in phase or phase == "unknown"
