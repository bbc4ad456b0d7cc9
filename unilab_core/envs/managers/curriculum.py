"""CurriculumManager: what grows harder as episodes succeed."""

from typing import Protocol

from unilab_core.config.env import CurriculumTermConfig
from unilab_core.contracts import IdArray
from unilab_core.envs.managers.resolve import resolve_term
from unilab_core.envs.mdp import curricula
from unilab_core.envs.mdp.curricula import CurriculumContext


class CurriculumManager(Protocol):
    """What the environment asks of its curriculum."""

    levels: dict[str, float]
    """Present level by term."""

    def update(self, ids: IdArray) -> None:
        """These episodes have just ended; before their counters are cleared."""
        ...


class NullCurriculumManager:
    """For tasks of constant difficulty."""

    def __init__(self) -> None:
        self.levels: dict[str, float] = {}

    def update(self, ids: IdArray) -> None:
        """Nothing changes."""


class TermCurriculumManager:
    """All curriculum terms."""

    def __init__(self, terms: dict[str, CurriculumTermConfig], context: CurriculumContext) -> None:
        self.levels: dict[str, float] = {}
        self._terms = {}
        for name, config in terms.items():
            path = f"env.curriculum.{name}"
            term = resolve_term(curricula, config.function, config.params, ("context",), path)
            self._terms[name] = term(context, **config.params)
            self.levels[name] = self._terms[name].level

    def update(self, ids: IdArray) -> None:
        """These episodes have just ended."""
        for name, term in self._terms.items():
            self.levels[name] = term.update(ids)


def make_curriculum_manager(
    terms: dict[str, CurriculumTermConfig], context: CurriculumContext
) -> CurriculumManager:
    """The manager of a task's curriculum."""
    return TermCurriculumManager(terms, context) if terms else NullCurriculumManager()
