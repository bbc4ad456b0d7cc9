"""Task ids. Tasks are frozen, so that handing them out needs no copies."""

from unilab_core.config.errors import unknown_name
from unilab_core.tasks.go2_joystick_flat import GO2_JOYSTICK_FLAT
from unilab_core.tasks.task import Task

_TASKS: dict[str, Task] = {}


def register(task: Task) -> None:
    """Add a task; a name that is taken is an error."""
    if task.name in _TASKS:
        raise ValueError(f"task {task.name!r} is registered already")
    _TASKS[task.name] = task


def find_task(name: str) -> Task:
    """The task called `name`; a ValueError names the nearest one."""
    if name not in _TASKS:
        raise unknown_name("task", name, _TASKS)
    return _TASKS[name]


def task_ids() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_TASKS))


register(GO2_JOYSTICK_FLAT)
