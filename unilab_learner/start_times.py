"""What a start costs: the import of torch, and from there to the first answered tick."""

from dataclasses import dataclass

NS_PER_S = 1_000_000_000


@dataclass(kw_only=True, slots=True, frozen=True)
class StartTimes:
    """Monotonic times of the learner's start, in ns."""

    import_started_ns: int
    imported_ns: int

    def figures(self, first_tick_ns: int | None) -> dict[str, float | None]:
        """The `startup` section of run_summary.json, in s; None where no tick was answered."""
        after_import_ns = None if first_tick_ns is None else first_tick_ns - self.imported_ns
        return {
            "import_torch_s": (self.imported_ns - self.import_started_ns) / NS_PER_S,
            "first_tick_s": None if after_import_ns is None else after_import_ns / NS_PER_S,
        }
