"""The places of all three roles: each one exists, and no phase is missing or too many."""

import importlib.util

import pytest

from unilab_collector import fault_places as collector_places
from unilab_core.launch import fault_places as launcher_places
from unilab_core.run.fault_point import Place, Sight, resolve
from unilab_core.run.faults import EVERY, PHASES, SIGHTED, Fault, actions_at
from unilab_ipc.heartbeat import PHASES as BOARD_PHASES
from unilab_learner import fault_places as learner_places

TASKS = ("go2_joystick_flat", "gym:Pendulum-v1")


def faults(role, algo):
    for phase in PHASES:
        for action in actions_at(role, phase, algo):
            yield Fault(role=role, phase=phase, n=1, action=action)


def places_of(fault, algo, task):
    if fault.role == "launcher":
        return launcher_places.places(fault)
    if fault.role == "collector":
        return collector_places.places(fault, algo, task)
    return learner_places.places(fault, algo)


@pytest.mark.parametrize("algo", sorted(EVERY))
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("role", ["launcher", "collector", "learner"])
def test_every_fault_has_places_that_exist(role, task, algo):
    if task.startswith("gym:") and importlib.util.find_spec("gymnasium") is None:
        pytest.skip("gymnasium is not installed")
    for fault in faults(role, algo):
        found = places_of(fault, algo, task)
        assert found, str(fault)
        for place in found:
            assert isinstance(place, Sight) == (fault.phase in SIGHTED[role]), str(fault)
            entry = place.opens if isinstance(place, Sight) else place
            assert callable(getattr(resolve(entry.owner), entry.method)), str(fault)
            if isinstance(place, Sight):
                assert place.phases <= set(BOARD_PHASES)
            if fault.action == "nan":
                assert isinstance(place, Place)
                assert place.spoil is not None, str(fault)
