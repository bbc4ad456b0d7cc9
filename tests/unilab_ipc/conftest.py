"""Fixtures of the IPC tests: a private runtime directory, a way to run child processes, and the
explorer of interleavings."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# With importlib mode a test module does not see its neighbours.
sys.path.insert(0, str(Path(__file__).parent))

Role = Iterator[str | Callable[[], bool]]
Build = Callable[[], tuple[list[Role], Callable[[list[str]], None]]]


@pytest.fixture(autouse=True)
def runtime_dir_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "runtime"
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `python -c CODE ARGS`; whatever still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Look every few milliseconds until a condition holds (an outside observer has no bell)."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 120.0
        while not condition():
            assert time.monotonic() < deadline_s, "the condition never came true"
            time.sleep(0.005)

    return wait


@pytest.fixture
def explore() -> Callable[..., int]:
    return explore_schedules


def explore_schedules(build: Build, *, crashes: bool = True) -> int:
    """Run every schedule of the roles that `build` makes; returns how many there were.

    A role is a generator. It yields a label after each step, or a callable when it must wait: it is
    scheduled again once the callable is true. With `crashes`, at every point of every schedule each
    role in turn is dropped for good (at most one per schedule). `build` also returns a check, which
    gets the fate of each role: "done", "crashed" or "blocked".
    """
    count = 0
    choices: list[int] = []
    while True:
        options = _run_schedule(build, choices, crashes)
        count += 1
        while options and choices_at(choices, len(options) - 1) == options[-1] - 1:
            options.pop()
        if not options:
            return count
        last = len(options) - 1
        prefix = [choices_at(choices, index) for index in range(last)]
        choices = [*prefix, choices_at(choices, last) + 1]


def choices_at(choices: list[int], index: int) -> int:
    return choices[index] if index < len(choices) else 0


def _run_schedule(build: Build, choices: list[int], crashes: bool) -> list[int]:
    roles, check = build()
    fates = ["running"] * len(roles)
    waits: list[Callable[[], bool] | None] = [None] * len(roles)
    crashed = not crashes
    options: list[int] = []
    while True:
        ready = [
            index
            for index, fate in enumerate(fates)
            if fate == "running" and (waits[index] is None or waits[index]())
        ]
        moves: list[tuple[str, int]] = [("step", index) for index in ready]
        if not crashed:
            moves += [("crash", i) for i, fate in enumerate(fates) if fate == "running"]
        if not ready:
            break
        move, index = moves[choices_at(choices, len(options))]
        options.append(len(moves))
        if move == "crash":
            fates[index] = "crashed"
            crashed = True
            continue
        try:
            step = next(roles[index])
        except StopIteration:
            fates[index] = "done"
        else:
            waits[index] = step if callable(step) else None
    check(["blocked" if fate == "running" else fate for fate in fates])
    return options
