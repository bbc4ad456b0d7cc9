"""Declared settings that cannot work say so."""

import pytest

from unilab_core.config import support
from unilab_core.config.compose import compose
from unilab_core.config.support import unsupported_settings


@pytest.mark.parametrize(
    "override",
    ["training.cuda_process_sharing=mps", "training.device=cuda:1",
     "training.wandb_project=x", "training.wandb_tags=[a,b]",
     "training.use_compile=true"],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_named_with_its_reason(conf, override):
    config = compose("sac", "walk", overrides=[override], conf=conf)
    reasons = unsupported_settings(config, has_gpu=False)
    assert len(reasons) == 1
    assert reasons[0].startswith(f"{override}: ")


def test_rl_traces_may_be_asked_for(conf):
    overrides = ["training.rl_trace=true", "training.rl_trace_every=8"]
    config = compose("sac", "walk", overrides=overrides, conf=conf)
    assert unsupported_settings(config, has_gpu=False) == []


@pytest.mark.parametrize("setting", ["policy=drop_episode", "buffer_size=9", "max_envs_to_dump=2",
                                     "output_dir=/tmp/x", "enabled=false"])  # fmt: skip
def test_every_key_of_the_nan_guard_works(conf, setting):
    config = compose("sac", "walk", overrides=[f"training.nan_guard.{setting}"], conf=conf)
    assert unsupported_settings(config, has_gpu=False) == []


def test_the_defaults_all_work(conf):
    assert unsupported_settings(compose("sac", "walk", conf=conf), has_gpu=False) == []


def test_cuda_is_fine_where_there_is_a_gpu(conf):
    config = compose("sac", "walk", overrides=["training.device=cuda"], conf=conf)
    assert unsupported_settings(config, has_gpu=True) == []


def test_wandb_without_the_package_gives_the_install_line(conf, monkeypatch):
    config = compose("sac", "walk", overrides=["training.logger=wandb"], conf=conf)
    monkeypatch.setattr(support, "is_installed", lambda _name: False)
    (reason,) = unsupported_settings(config, has_gpu=False)
    assert reason == (
        "training.logger=wandb: the package wandb is not installed: pip install 'unilab-rl[wandb]'"
    )


def test_wandb_with_the_package_takes_all_its_keys(conf, monkeypatch):
    overrides = ["training.logger=wandb", "training.wandb_project=p", "training.wandb_tags=[a]",
                 "training.wandb_mode=offline"]  # fmt: skip
    config = compose("sac", "walk", overrides=overrides, conf=conf)
    monkeypatch.setattr(support, "is_installed", lambda _name: True)
    assert unsupported_settings(config, has_gpu=False) == []


@pytest.mark.parametrize("extra", ["trace_enabled=true", "trace_thread_time=true",
                                   "export_onnx=false", "trace_output_dir=/tmp/x"])  # fmt: skip
def test_timeline_and_export_are_honoured(conf, extra):
    config = compose("sac", "walk", overrides=[f"training.{extra}"], conf=conf)
    assert unsupported_settings(config, has_gpu=False) == []
