"""Faults are wrapped around the places where they strike; code without a fault has no hooks.

    places of the role and phase  --arm-->  their methods are replaced by counting ones
    n-th passage                  ------->  one line on standard error, then the action

A place is a method and a moment in it: before, after, or one of the named steps that a protocol's
generator yields (`half a cell written`). A role that does not pass a phase itself watches the
heartbeat board for another one (`Sight`). Nothing here runs unless `UNILAB_FAULT` names this role.
"""

import errno
import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unilab_core.run.faults import VARIABLE, Fault
from unilab_ipc.heartbeat import HeartbeatBoard, RoleBeat

EXIT_CODE = 7
STAND_STILL_S = 86_400.0
SIGHT_INTERVAL_S = 0.0005
FIRED = f"{VARIABLE} fires"
"""Start of the line that tells when a fault struck, with the monotonic time in ns."""


class InjectedFault(RuntimeError):  # noqa: N818 - the name says what it is
    """What the action `raise` raises."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Place:
    """Where a fault can strike."""

    owner: str
    """`module` or `module:Class`; imported only when a fault is armed there."""
    method: str
    moment: str = "before"
    """`before`, `after`, or the name of a step that the method yields."""
    when: Callable[..., bool] | None = None
    """Called with the method's arguments: whether this call is a passage at all."""
    spoil: Callable[[tuple[Any, ...], Any], None] | None = None
    """Arguments and result: puts a NaN into what passes, for the action `nan`."""


def entering(phase: str) -> Place:
    """The moment in which a role enters a phase of the heartbeat board."""

    def entered(_beat: RoleBeat, entered_phase: str, *_: object) -> bool:
        return entered_phase == phase

    return Place(owner="unilab_ipc.heartbeat:RoleBeat", method="phase", when=entered)


@dataclass(kw_only=True, slots=True, frozen=True)
class Sight:
    """Strikes while the board shows another role in one of these phases."""

    opens: Place
    """Passed once the board exists."""
    board: Callable[[tuple[Any, ...], Any], HeartbeatBoard]
    """The board, from arguments and result of that place."""
    role: str
    phases: frozenset[str]


class FaultPoint:
    """Counts passages and strikes at the n-th."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._left = fault.n

    def passed(self) -> bool:
        """One passage. Returns True when the data that passes is to be spoiled (`nan`)."""
        self._left -= 1
        if self._left != 0:
            return False
        fault = self._fault
        line = f"{FIRED}: {fault} pid {os.getpid()} t_ns {time.monotonic_ns()}\n"
        os.write(sys.stderr.fileno(), line.encode())
        match fault.action:
            case "kill":
                signal.raise_signal(signal.SIGKILL)
            case "segv":
                signal.raise_signal(signal.SIGSEGV)
            case "stop":
                signal.raise_signal(signal.SIGSTOP)
            case "exit":
                os._exit(EXIT_CODE)
            case "raise":
                raise InjectedFault(f"{VARIABLE}={fault}")
            case "sleep":
                time.sleep(STAND_STILL_S if fault.seconds is None else fault.seconds)
            case "enospc":
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({VARIABLE}={fault})")
        return fault.action == "nan"


def arm(fault: Fault, places: Sequence[Place | Sight]) -> Callable[[], None]:
    """Wrap the places of one fault; they share one count. Returns what takes the wrapping off."""
    point = FaultPoint(fault)
    undo = [
        _wrap_sight(point, place) if isinstance(place, Sight) else _wrap(point, place)
        for place in places
    ]

    def disarm() -> None:
        for restore in reversed(undo):
            restore()

    return disarm


def resolve(owner: str) -> Any:  # noqa: ANN401 - a module or a class
    """What `module` or `module:Class` names."""
    module, _, name = owner.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def _wrap(point: FaultPoint, place: Place) -> Callable[[], None]:
    owner = resolve(place.owner)
    original = getattr(owner, place.method)

    def pass_by(args: tuple[Any, ...], result: object) -> None:
        if (place.when is None or place.when(*args)) and point.passed() and place.spoil is not None:
            place.spoil(args, result)

    @functools.wraps(original)
    def simple(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any method's
        if place.moment == "before":
            pass_by(args, None)
        result = original(*args, **kwargs)
        if place.moment == "after":
            pass_by(args, result)
        return result

    @functools.wraps(original)
    def stepwise(*args: Any, **kwargs: Any) -> Iterator[str]:  # noqa: ANN401
        for step in original(*args, **kwargs):
            if step == place.moment:
                pass_by(args, None)
            yield step

    inherited = place.method not in vars(owner)
    setattr(owner, place.method, simple if place.moment in ("before", "after") else stepwise)

    def restore() -> None:
        if inherited:
            delattr(owner, place.method)
        else:
            setattr(owner, place.method, original)

    return restore


def _wrap_sight(point: FaultPoint, sight: Sight) -> Callable[[], None]:
    owner = resolve(sight.opens.owner)
    original = getattr(owner, sight.opens.method)

    @functools.wraps(original)
    def opening(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(*args, **kwargs)
        board = sight.board(args, result)
        threading.Thread(target=_watch, args=(point, sight, board), daemon=True).start()
        return result

    setattr(owner, sight.opens.method, opening)
    return lambda: setattr(owner, sight.opens.method, original)


def _watch(point: FaultPoint, sight: Sight, board: HeartbeatBoard) -> None:
    """Count the times that the other role was seen entering one of the phases."""
    inside = False
    while True:
        was_inside, inside = inside, board.row(sight.role, 0).phase in sight.phases
        if inside and not was_inside:
            point.passed()
        time.sleep(SIGHT_INTERVAL_S)
