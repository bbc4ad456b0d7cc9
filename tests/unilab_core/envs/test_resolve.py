"""Names of the configuration into functions."""

import pytest

from unilab_core.envs.managers.resolve import resolve_term
from unilab_core.envs.mdp import rewards


def resolve(function, params):
    return resolve_term(rewards, function, params, ("env",), "env.rewards.r")


def test_a_known_name_gives_its_function():
    assert resolve("base_height", {"target_m": 0.3}) is rewards.base_height


def test_an_unknown_function_names_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown function in env\.rewards\.r 'base_heigth'.*base_height"
    ):
        resolve("base_heigth", {})


def test_helpers_and_imports_are_no_terms():
    for name in ("_row_sum", "np", "TermView"):
        with pytest.raises(ValueError, match="unknown function"):
            resolve(name, {})


def test_an_unknown_parameter_names_the_nearest():
    with pytest.raises(ValueError, match=r"env\.rewards\.r\.params\.target.*target_m"):
        resolve("base_height", {"target": 0.3})


def test_a_missing_parameter_is_named():
    with pytest.raises(ValueError, match=r"env\.rewards\.r\.params\.target_m: missing"):
        resolve("base_height", {})


def test_a_function_outside_is_reached_by_its_module():
    term = resolve("unilab_core.envs.mdp.rewards:lin_vel_z", {})
    assert term is rewards.lin_vel_z
    with pytest.raises(ValueError, match=r"env\.rewards\.r\.function: No module"):
        resolve("no_such_module:lin_vel_z", {})
