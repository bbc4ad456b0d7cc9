"""Threads of the roles on small and large machines."""

import pytest

from unilab_core.config.training import TorchThreadsConfig
from unilab_core.run.threads import plan_threads


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 64])
def test_the_roles_never_ask_for_more_than_two_threads_beyond_the_cores(cores):
    plan = plan_threads(TorchThreadsConfig(), cores)
    assert plan.learner >= 1
    assert plan.collector >= 1
    assert plan.learner + plan.collector <= cores + 2


def test_given_numbers_are_taken_as_they_are():
    config = TorchThreadsConfig(learner_num_threads=3, collector_num_threads=5)
    plan = plan_threads(config, cores=2)
    assert (plan.learner, plan.collector) == (3, 5)


def test_switched_off_leaves_libraries_alone():
    plan = plan_threads(TorchThreadsConfig(enabled=False), cores=8)
    assert (plan.learner, plan.collector) == (None, None)


@pytest.mark.parametrize(
    ("overlap", "cores", "learner", "collector"),
    [("never", 2, 2, 2), ("never", 8, 8, 8), ("always", 2, 1, 1), ("always", 5, 3, 2),
     ("always", 1, 1, 1)],
)  # fmt: skip
def test_roles_that_take_turns_share_every_core_and_roles_that_overlap_divide_them(
    overlap, cores, learner, collector
):
    plan = plan_threads(TorchThreadsConfig(), cores, overlap)
    assert (plan.learner, plan.collector) == (learner, collector)
