"""The environment contract on every registered task and every backend it supports."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from unilab_core.config.env import EnvConfig
from unilab_core.envs import make_env
from unilab_core.envs.contract_suite import EnvContract
from unilab_core.tasks.registry import find_task, task_ids

CONF = Path(__file__).resolve().parents[2] / "conf" / "env"
CASES = [(task, sim) for task in task_ids() for sim in find_task(task).sims]


@pytest.mark.parametrize(("task", "sim"), CASES, ids=["-".join(case) for case in CASES])
class TestRegisteredTasks(EnvContract):
    @pytest.fixture
    def build(self, task, sim):
        config = EnvConfig.from_dict(yaml.safe_load((CONF / f"{task}.yaml").read_text()))

        def build(*, num_envs=6, seed=0, num_threads=1, spread_episodes=True, **changes):
            return make_env(
                task,
                sim,
                dataclasses.replace(config, **changes),
                num_envs=num_envs,
                seed=seed,
                num_threads=num_threads,
                spread_episodes=spread_episodes,
            )

        return build
