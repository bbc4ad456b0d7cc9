"""The env section: strict, frozen, and back to plain values."""

import copy
import dataclasses
from pathlib import Path

import pytest
import yaml

from unilab_core.config.env import EnvConfig

CONF = Path(__file__).resolve().parents[3] / "conf" / "env"
FILES = sorted(CONF.glob("*.yaml"))


@pytest.fixture
def plain():
    return yaml.safe_load((CONF / "go2_joystick_flat.yaml").read_text())


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_loads_and_returns_to_the_same_config(path):
    config = EnvConfig.from_dict(yaml.safe_load(path.read_text()))
    assert EnvConfig.from_dict(config.to_dict()) == config


def test_derived_step_counts(plain):
    config = EnvConfig.from_dict(plain)
    assert config.num_substeps == 2
    assert config.max_episode_steps == 1000


def test_it_cannot_be_changed(plain):
    config = EnvConfig.from_dict(plain)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.noise = True


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("simdt",), 0.01, r"unknown key 'env\.simdt'.*env\.sim_dt"),
        (("sim_dt",), "fast", r"env\.sim_dt: got 'fast' \(str\), expected float"),
        (("sim_dt",), 0.0, r"env\.sim_dt: got 0\.0, expected more than 0"),
        (("ctrl_dt",), 0.025, r"env\.ctrl_dt: got 0\.025, expected a multiple of 0\.01"),
        (("physics",), "slow", r"env\.physics: unknown value 'slow'"),
        (("noise",), 1, r"env\.noise: got 1 \(int\), expected true or false"),
        (("rewards",), {}, r"env\.rewards: expected at least one term"),
        (("rewards", "contact", "wieght"), 1.0, r"env\.rewards\.contact\.wieght.*weight"),
        (("rewards", "contact", "weight"), "x", r"env\.rewards\.contact\.weight: got 'x'"),
        (("rewards", "contact", "params"), 3, r"env\.rewards\.contact\.params: expected a section"),
        (("rewards", "contact"), 3, r"env\.rewards\.contact: expected a section"),
        (("observations", "polcy"), {}, r"unknown observation group 'env\.observations\.polcy'"),
        (
            ("observations", "policy", "gyro", "clip"),
            [1.0, -1.0],
            r"env\.observations\.policy\.gyro\.clip: got \[1\.0, -1\.0\], expected \[low, high\]",
        ),
        (
            ("observations", "policy", "gyro", "history"),
            0,
            r"env\.observations\.policy\.gyro\.history: got 0",
        ),
        (("events", "push", "mode"), "never", r"env\.events\.push\.mode: unknown value 'never'"),
        (("events", "push", "interval_s"), None, r"env\.events\.push\.interval_s: belongs to"),
        (("commands", "velocity", "resampling_s"), [3.0], r"resampling_s: got \[3\.0\]"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(plain, path, value, message):
    data = copy.deepcopy(plain)
    section = data
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    with pytest.raises(ValueError, match=message) as raised:
        EnvConfig.from_dict(data)
    assert "\n" not in str(raised.value)


def test_a_missing_section_is_named(plain):
    del plain["actions"]
    with pytest.raises(ValueError, match="actions"):
        EnvConfig.from_dict(plain)


def test_a_term_set_to_null_is_left_out(plain):
    plain["rewards"]["contact"] = None
    plain["events"]["push"] = None
    config = EnvConfig.from_dict(plain)
    assert "contact" not in config.rewards
    assert "push" not in config.events
    assert len(config.rewards) == 8
