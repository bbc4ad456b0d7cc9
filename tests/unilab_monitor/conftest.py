"""A private registry per test, and synthetic jobs that clean up after themselves."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic_job import SyntheticJob


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "registry"
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., SyntheticJob]]:
    """A live job of this process; its segments are removed at the end of the test."""
    jobs: list[SyntheticJob] = []

    def make(name: str = "go2-1", **options: object) -> SyntheticJob:
        run_dir = tmp_path / f"run-{name}"
        run_dir.mkdir(exist_ok=True)
        jobs.append(SyntheticJob(name, run_dir, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.unlink()
