"""`UNILAB_FAULT=role:phase:n:action`: one deliberate fault, for tests of what a job does then.

    UNILAB_FAULT=collector:P4e:3:kill   the collector dies writing its third tick into the ingress
    UNILAB_FAULT=learner:P5:1:enospc    the first checkpoint meets a full disk

Every role reads the variable once, at its start; a value that is not one is a ConfigError before
anything exists. Where it is unset nothing is installed, so nothing costs anything: a fault is
wrapped around the methods of its place (`fault_point.arm`), which each package lists for its role
(`fault_places`). docs/faults.md explains phases and actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unilab_core.config.errors import ConfigError

VARIABLE = "UNILAB_FAULT"
ROLES = ("launcher", "collector", "learner")
SYNTAX = "role:phase:n:action, for example collector:P4e:3:kill"

PHASES = {
    "P0": "segments are being created",
    "P1": "processes are started",
    "P2": "handshake: attaching to the job",
    "P3": "warm-up",
    "P4a": "environment step, or update",
    "P4b": "inference request posted, answer pending",
    "P4c": "rollout being written or read",
    "P4d": "weights being published or taken",
    "P4e": "replay ingress: a tick being written or read",
    "P4f": "metric record being written",
    "P5": "checkpoint being written",
    "P6": "clean-up",
    "P7": "resume: checkpoint being loaded",
}

ACTIONS = {
    "kill": "SIGKILL to itself",
    "segv": "SIGSEGV to itself",
    "stop": "SIGSTOP to itself; somebody else continues or ends it",
    "exit": "ends at once with code 7, without any clean-up",
    "raise": "raises InjectedFault",
    "sleep": "stands still; `sleep=SECONDS` for so long",
    "nan": "the data that passes holds a NaN",
    "enospc": "the write fails with ENOSPC",
}

EVERY = frozenset({"sac", "flashsac", "ppo", "appo"})
_OFF_POLICY = frozenset({"sac", "flashsac"})
_ON_POLICY = frozenset({"ppo", "appo"})
_SLOT = frozenset({"sac", "flashsac", "ppo"})
_APPO = frozenset({"appo"})

OCCURS: dict[str, dict[str, frozenset[str]]] = {
    "launcher": {**dict.fromkeys(PHASES, EVERY), "P4c": _ON_POLICY, "P4e": _OFF_POLICY},
    "collector": {
        **dict.fromkeys(PHASES, EVERY),
        "P4c": _ON_POLICY,
        "P4d": _APPO,
        "P4e": _OFF_POLICY,
    },
    "learner": {**dict.fromkeys(PHASES, EVERY), "P4c": _ON_POLICY, "P4e": _OFF_POLICY},
}
"""Algorithms in which a role passes a phase."""

SIGHTED: dict[str, tuple[str, ...]] = {
    "launcher": ("P4b", "P4c", "P4d", "P4e", "P4f", "P5", "P7"),
    "collector": ("P5", "P7"),
    "learner": (),
}
"""Phases that a role does not pass itself: it watches the board until another role enters them."""

SIGHTED_ACTIONS = ("kill", "segv", "stop", "exit")
"""What a watching thread can do to its process."""

NAN_PHASES: dict[str, dict[str, frozenset[str]]] = {
    "launcher": {},
    "collector": {"P3": EVERY, "P4a": EVERY, "P4b": _SLOT, "P4c": _APPO, "P4e": _OFF_POLICY},
    "learner": {"P4a": EVERY, "P4d": EVERY, "P5": EVERY},
}
ENOSPC_PHASES: dict[str, dict[str, frozenset[str]]] = {
    "launcher": {"P0": EVERY, "P6": EVERY},
    "collector": {},
    "learner": {"P4f": EVERY, "P5": EVERY},
}


@dataclass(kw_only=True, slots=True, frozen=True)
class Fault:
    """One fault, as asked for."""

    role: str
    phase: str
    n: int
    """Which passage of the place it strikes, from 1."""
    action: str
    seconds: float | None = None
    """Of `sleep`; None stands still until ended."""

    def __str__(self) -> str:
        """As in the variable."""
        action = self.action if self.seconds is None else f"{self.action}={self.seconds:g}"
        return f"{self.role}:{self.phase}:{self.n}:{action}"


def read_fault(environ: Mapping[str, str]) -> Fault | None:
    """The fault that is asked for, whichever role it strikes; None where none is."""
    text = environ.get(VARIABLE, "")
    return parse_fault(text) if text else None


def fault_of(role: str, environ: Mapping[str, str]) -> Fault | None:
    """The fault that strikes this role; a fault of another role is checked, then left alone."""
    fault = read_fault(environ)
    return fault if fault is not None and fault.role == role else None


def parse_fault(text: str) -> Fault:
    """Read `role:phase:n:action`.

    Raises:
        ConfigError: names what is wrong and what would be right.
    """
    parts = text.split(":")
    if len(parts) != 4:
        raise ConfigError(f"{VARIABLE}: got {text!r}, expected {SYNTAX}")
    role, phase, count, act = parts
    action, has_seconds, seconds_text = act.partition("=")
    _require(role in ROLES, "role", role, ", ".join(ROLES))
    _require(phase in PHASES, "phase", phase, ", ".join(PHASES))
    _require(count.isascii() and count.isdigit() and int(count) >= 1, "n", count, "an integer >= 1")
    _require(action in ACTIONS, "action", action, ", ".join(ACTIONS))
    seconds = None
    if has_seconds:
        _require(action == "sleep", "action", act, f"{action} without a number")
        seconds = _seconds(seconds_text)
    allowed = actions_at(role, phase)
    _require(action in allowed, f"action at {role}:{phase}", action, ", ".join(allowed))
    return Fault(role=role, phase=phase, n=int(count), action=action, seconds=seconds)


def actions_at(role: str, phase: str, algo: str | None = None) -> tuple[str, ...]:
    """What can be done to a role in a phase; with `algo`, nothing where it never gets there."""
    if algo is not None and algo not in OCCURS[role][phase]:
        return ()
    if phase in SIGHTED[role]:
        return SIGHTED_ACTIONS
    data = {"nan": NAN_PHASES[role], "enospc": ENOSPC_PHASES[role]}
    return tuple(
        action
        for action in ACTIONS
        if action not in data
        or (algo or "") in data[action].get(phase, ())
        # Without an algorithm: whether there is any in which it can be done.
        or (algo is None and phase in data[action])
    )


def require_occurs(fault: Fault, algo: str) -> None:
    """Refuse a fault that this algorithm can never meet; it would be waited for in vain.

    Raises:
        ConfigError: names the algorithms that can.
    """
    if fault.action not in actions_at(fault.role, fault.phase, algo):
        able = [name for name in sorted(EVERY) if fault.action in _at(fault, name)]
        raise ConfigError(
            f"{VARIABLE}: {fault} cannot happen with {algo}, only with {', '.join(able)}"
        )


def _at(fault: Fault, algo: str) -> tuple[str, ...]:
    return actions_at(fault.role, fault.phase, algo)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    _require(0.0 < seconds <= 86_400.0, "sleep", text, "seconds > 0 and at most 86400")
    return seconds


def _require(good: bool, what: str, got: str, expected: str) -> None:
    if not good:
        raise ConfigError(f"{VARIABLE}: {what}: got {got!r}, expected {expected}")
