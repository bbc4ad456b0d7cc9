"""UNILAB_FAULT as text: what it means, and one line that says what is wrong with it."""

import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.run.faults import (
    OCCURS,
    PHASES,
    ROLES,
    SIGHTED,
    SIGHTED_ACTIONS,
    Fault,
    actions_at,
    fault_of,
    parse_fault,
    read_fault,
    require_occurs,
)


def test_a_fault_is_role_phase_passage_and_action():
    fault = parse_fault("collector:P4e:3:kill")
    assert fault == Fault(role="collector", phase="P4e", n=3, action="kill")
    assert str(fault) == "collector:P4e:3:kill"


def test_a_sleep_may_have_a_length():
    fault = parse_fault("learner:P4a:1:sleep=0.5")
    assert (fault.action, fault.seconds) == ("sleep", 0.5)
    assert str(fault) == "learner:P4a:1:sleep=0.5"
    assert parse_fault("learner:P4a:1:sleep").seconds is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kill", "expected role:phase:n:action"),
        ("collector:P4e:3:kill:x", "expected role:phase:n:action"),
        ("monitor:P4e:3:kill", "role: got 'monitor', expected launcher, collector, learner"),
        ("collector:P8:3:kill", "phase: got 'P8', expected P0, P1"),
        ("collector:P4e:0:kill", "n: got '0', expected an integer >= 1"),
        ("collector:P4e:-1:kill", "n: got '-1'"),
        ("collector:P4e:two:kill", "n: got 'two'"),
        ("collector:P4e:²:kill", "n: got"),
        ("collector:P4e:1:explode", "action: got 'explode', expected kill, segv"),
        ("collector:P4e:1:kill=3", "kill without a number"),
        ("collector:P4e:1:sleep=", "sleep: got '', expected seconds > 0"),
        ("collector:P4e:1:sleep=nan", "sleep: got 'nan'"),
        ("collector:P4f:1:nan", "action at collector:P4f: got 'nan', expected kill"),
        ("collector:P5:1:raise", "action at collector:P5: got 'raise', expected kill, segv"),
        ("launcher:P4a:1:enospc", "action at launcher:P4a"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_value_and_what_would_be_right(text, names):
    with pytest.raises(ConfigError) as raised:
        parse_fault(text)
    message = str(raised.value)
    assert message.startswith("UNILAB_FAULT: ")
    assert "\n" not in message
    assert names in message


def test_unset_and_empty_are_no_fault():
    assert read_fault({}) is None
    assert read_fault({"UNILAB_FAULT": ""}) is None


def test_a_role_gets_its_own_fault_only_and_still_refuses_a_bad_one():
    environ = {"UNILAB_FAULT": "learner:P5:1:enospc"}
    assert fault_of("collector", environ) is None
    assert fault_of("learner", environ) is not None
    with pytest.raises(ConfigError):
        fault_of("collector", {"UNILAB_FAULT": "learner:P5:1:burn"})


def test_a_fault_that_an_algorithm_never_meets_is_refused_with_those_that_do():
    require_occurs(parse_fault("collector:P4e:1:kill"), "sac")
    with pytest.raises(ConfigError, match="cannot happen with ppo, only with flashsac, sac"):
        require_occurs(parse_fault("collector:P4e:1:kill"), "ppo")
    with pytest.raises(ConfigError, match="only with appo"):
        require_occurs(parse_fault("collector:P4c:1:nan"), "ppo")


def test_every_phase_of_every_role_is_listed_and_can_be_struck_somewhere():
    for role in ROLES:
        assert set(OCCURS[role]) == set(PHASES)
        for phase in PHASES:
            assert "kill" in actions_at(role, phase)
        assert all(actions_at(role, phase) == SIGHTED_ACTIONS for phase in SIGHTED[role])
