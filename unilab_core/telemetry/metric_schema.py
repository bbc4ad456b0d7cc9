"""Metric schema 1: which tags exist, and the fail-closed rules about them.

Every tag is declared once, in `metric_table.py`. Emitters, the TensorBoard and W&B sinks, the
panel, the monitor, the extraction tool and docs/metrics.md read that table through this module.
A changed name, unit or meaning needs a new `METRIC_SCHEMA_VERSION`: a test holds the digest of the
frozen version. Tags may be added within a version, together with tests and docs.

Rules: an unknown tag, a tag of another algorithm, a tag without meaning in this kind of run and a
value that is not a number are errors. Non-finite numbers pass: they are information, and every
sink takes them.
"""

from collections.abc import Iterable, Mapping
from math import inf

import numpy as np

from unilab_core.telemetry.metric_spec import ALGOS, MetricSpec
from unilab_core.telemetry.metric_table import DECLARED

METRIC_SCHEMA_VERSION = 1

MAX_TERM_CHARS = 64
MAX_FAMILY_TERMS = 256
"""Terms of one family in one record: a bound on what a foreign environment can make us store."""

METRICS: Mapping[str, MetricSpec] = {m.tag: m for m in DECLARED if "<" not in m.tag}
"""The fixed tags, in order of display."""

FAMILIES: tuple[MetricSpec, ...] = tuple(m for m in DECLARED if "<" in m.tag)

LOGGER_OWNED: frozenset[str] = frozenset(tag for tag, m in METRICS.items() if m.logger_owned)
"""Fixed tags that the training logger derives; nobody may pass them in as a metric."""

# Legacy aggregates used these names in the reward tree; a term of that name would pass for one.
_RESERVED_TERMS = {"reward/<term>": frozenset({"mean", "mean_ep100"})}

# Algorithms whose collector phases add up to its cycle; APPO reports moving averages instead.
_ALGOS_WITH_CYCLE = ("sac", "flashsac")


def spec(tag: str) -> MetricSpec:
    """The declaration of a tag, families included; ValueError for an unknown tag."""
    found = METRICS.get(tag) or family_of(tag)
    if found is None:
        raise ValueError(f"metric {tag!r} is not in metric schema {METRIC_SCHEMA_VERSION}")
    return found


def family_of(tag: str) -> MetricSpec | None:
    """The family a tag belongs to, or None; ValueError when its term is not allowed."""
    for family in FAMILIES:
        if tag.startswith(family.prefix):
            check_term(family, tag[len(family.prefix) :])
            return family
    return None


def check_term(family: MetricSpec, term: str) -> None:
    """A term is one printable path element, not reserved, not already prefixed."""
    printable = term.isprintable() and term == term.strip()
    if not 0 < len(term) <= MAX_TERM_CHARS or "/" in term or not printable:
        raise ValueError(
            f"{family.tag}: {term!r} is not a term name"
            f" (1 to {MAX_TERM_CHARS} printable characters without '/')"
        )
    if term in _RESERVED_TERMS.get(family.tag, ()):
        raise ValueError(f"{family.tag}: the term name {term!r} is reserved")


def allowed_tags(algo: str, *, ranks: int = 1, accelerator: bool = False) -> frozenset[str]:
    """Fixed tags that a run of this kind may write."""
    _check_algo(algo)
    absent = set()
    if ranks == 1:
        absent.add("data parallel")
    if not accelerator:
        absent.add("accelerator")
    return frozenset(t for t, m in METRICS.items() if algo in m.algos and m.when not in absent)


def expected_tags(algo: str, *, ranks: int = 1, accelerator: bool = False) -> frozenset[str]:
    """Fixed tags that such a run has written by its end, once one episode was completed."""
    allowed = allowed_tags(algo, ranks=ranks, accelerator=accelerator)
    return frozenset(t for t in allowed if METRICS[t].when != "reward normalisation")


def learner_phases(algo: str) -> tuple[MetricSpec, ...]:
    """Exclusive phases of the learner's iteration, in display order."""
    return _phases(algo, "learner")


def collector_phases(algo: str) -> tuple[MetricSpec, ...]:
    """Phases whose sum is the collector's cycle, in order; () where the times do not add up."""
    return _phases(algo, "collector") if algo in _ALGOS_WITH_CYCLE else ()


def details_of(tag: str) -> tuple[MetricSpec, ...]:
    """Nested details of a phase, in order."""
    return tuple(m for m in METRICS.values() if m.parent == tag)


def in_ms(tag: str, value: float) -> float:
    """A duration in milliseconds, whichever unit its tag is kept in."""
    return value * 1000.0 if METRICS[tag].unit == "s" else value


def validate_record(
    algo: str, scalars: Mapping[str, object], *, ranks: int = 1, accelerator: bool = True
) -> None:
    """Check one record of scalars: known tags of this algorithm, numbers only."""
    validate_tags(algo, scalars, allowed_tags(algo, ranks=ranks, accelerator=accelerator))
    for tag, value in scalars.items():
        checked_number(tag, value)


def validate_tags(algo: str, tags: Iterable[str], allowed: frozenset[str]) -> None:
    """Each tag is in `allowed` or in a family of the algorithm; ValueError otherwise."""
    terms_per_family: dict[str, int] = {}
    for tag in tags:
        if tag in allowed:
            continue
        found = spec(tag)
        if found.tag == tag or algo not in found.algos:
            raise ValueError(
                f"metric {tag!r} has no place in this {algo} run"
                f" (algorithms: {', '.join(found.algos)}; exists: {found.when})"
            )
        terms_per_family[found.tag] = terms_per_family.get(found.tag, 0) + 1
        if terms_per_family[found.tag] > MAX_FAMILY_TERMS:
            raise ValueError(f"{found.tag}: more than {MAX_FAMILY_TERMS} terms in one record")


def checked_number(tag: str, value: object) -> float:
    """A value as float; ValueError for bools, tensors and text."""
    if type(value) is float:  # nearly always: keep the common case short
        return value
    number = isinstance(value, int | float | np.integer | np.floating)
    if not number or isinstance(value, bool):
        raise ValueError(f"metric {tag!r}: expected a number, got {type(value).__name__}")
    return float(value)


def checked_gauge(tag: str, value: object) -> float:
    """An inference diagnostic as float: finite and at least 0; ValueError otherwise."""
    number = checked_number(tag, value)
    if not 0.0 <= number < inf:
        raise ValueError(f"metric {tag!r}: expected a finite number >= 0, got {number}")
    return number


def _phases(algo: str, owner: str) -> tuple[MetricSpec, ...]:
    _check_algo(algo)
    return tuple(
        m for m in METRICS.values() if m.part == "phase" and m.owner == owner and algo in m.algos
    )


def _check_algo(algo: str) -> None:
    if algo not in ALGOS:
        raise ValueError(f"algorithm {algo!r} is not one of {', '.join(ALGOS)}")
