"""What a metric declaration consists of: the vocabulary of `metric_table.py`.

owner        who measures the value (`OWNERS`)
aggregation  how several reports of one iteration become one value
part         how the value relates to a time line:
               phase       exclusive slice of its time line (learner: Iter Wall; collector:
                           cycle); the slices of one time line add up
               nested      a detail inside the phase `parent`, never added again
               background  may overlap any phase, never added
               wall        a whole time line
               value       no part of a time line
dp_rule      how the values of all ranks become one
when         the condition under which the tag exists at all
"""

from dataclasses import dataclass
from typing import Literal

ALGOS: tuple[str, ...] = ("ppo", "appo", "sac", "flashsac")
OWNERS = (
    "runner",
    "collector",
    "learner",
    "learner submit thread",
    "ipc/replay",
    "ipc/dp_sync",
    "environment",
)

Aggregation = Literal["last", "mean", "max", "sum"]
DpRule = Literal["mean", "sum", "rank 0"]
Part = Literal["phase", "nested", "background", "wall", "value"]
Condition = Literal[
    "always", "episode", "wall measured", "data parallel", "accelerator", "reward normalisation"
]

TERMINAL_TOO = ("tensorboard", "wandb", "terminal")
FILES_ONLY = ("tensorboard", "wandb")


@dataclass(kw_only=True, slots=True, frozen=True)
class MetricSpec:
    """One tag, or one family when `tag` ends in `<term>` or `<name>`."""

    tag: str
    unit: str
    owner: str
    algos: tuple[str, ...]
    label: str
    """Short name in the terminal."""
    doc: str
    aggregation: Aggregation = "last"
    step_axis: str = "env steps"
    dp_rule: DpRule = "mean"
    backends: tuple[str, ...] = TERMINAL_TOO
    part: Part = "value"
    parent: str | None = None
    when: Condition = "always"
    logger_owned: bool = False
    """Only the training logger writes it; a learner that passes it as a metric is wrong."""

    @property
    def prefix(self) -> str:
        """The literal part of a family's tag; the whole tag otherwise."""
        return self.tag.partition("<")[0]
