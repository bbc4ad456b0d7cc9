"""EventManager: changes to the simulation at start-up, at resets and every so often.

Interval events act before physics, so that the observations of the step already show their effect.
"""

from typing import Protocol

import numpy as np

from unilab_core.config.env import EventTermConfig
from unilab_core.contracts import IdArray
from unilab_core.envs.managers.resolve import resolve_term
from unilab_core.envs.mdp import events
from unilab_core.envs.mdp.events import EventContext


class EventManager(Protocol):
    """What the environment asks of its events."""

    def startup(self) -> None:
        """Once, before the first reset."""
        ...

    def interval(self) -> None:
        """Before the physics of every step."""
        ...

    def reset(self, ids: IdArray) -> None:
        """After these environments went to the home pose."""
        ...


class NullEventManager:
    """For tasks without events."""

    def startup(self) -> None:
        """Nothing to change."""

    def interval(self) -> None:
        """Nothing to change."""

    def reset(self, ids: IdArray) -> None:
        """Nothing to change."""


class TermEventManager:
    """All active event terms."""

    def __init__(self, terms: dict[str, EventTermConfig], context: EventContext) -> None:
        self._context = context
        self._startup, self._reset, self._interval = [], [], []
        for name, config in terms.items():
            path = f"env.events.{name}"
            given = ("context", "ids")
            function = resolve_term(events, config.function, config.params, given, path)
            if config.mode == "startup":
                self._startup.append((function, config.params))
            elif config.mode == "reset":
                self._reset.append((function, config.params))
            else:
                assert config.interval_s is not None
                timer = _Timer(config.interval_s, context)
                self._interval.append((function, config.params, timer))

    def startup(self) -> None:
        """Once, before the first reset."""
        ids = np.arange(self._context.num_envs)
        for function, params in self._startup:
            function(self._context, ids, **params)

    def interval(self) -> None:
        """Before the physics of every step."""
        for function, params, timer in self._interval:
            ids = timer.due()
            if len(ids):
                function(self._context, ids, **params)

    def reset(self, ids: IdArray) -> None:
        """After these environments went to the home pose."""
        for function, params in self._reset:
            function(self._context, ids, **params)


class _Timer:
    """Steps until the next event of each environment; first ones spread over an interval."""

    def __init__(self, interval_s: tuple[float, ...], context: EventContext) -> None:
        self._low, self._high = (max(1, round(s / context.step_dt_s)) for s in interval_s)
        self._rng = context.rng
        self._left = self._rng.integers(1, self._high, size=context.num_envs, endpoint=True)

    def due(self) -> IdArray:
        """Advance by a step; environments whose event is now."""
        self._left -= 1
        ids = np.flatnonzero(self._left <= 0)
        if len(ids):
            self._left[ids] = self._rng.integers(self._low, self._high, len(ids), endpoint=True)
        return ids


def make_event_manager(
    terms: dict[str, EventTermConfig], context: EventContext, *, domain_randomization: bool
) -> EventManager:
    """The manager of a task's events; those of domain randomisation only where it is on."""
    active = {
        name: config
        for name, config in terms.items()
        if domain_randomization or not config.domain_randomization
    }
    return TermEventManager(active, context) if active else NullEventManager()
