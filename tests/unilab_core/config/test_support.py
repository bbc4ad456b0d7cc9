"""Declared settings that cannot work say so."""

import pytest

from unilab_core.config.compose import compose
from unilab_core.config.support import unsupported_settings


@pytest.mark.parametrize(
    "override",
    ["training.logger=wandb", "training.trace_enabled=true",
     "training.export_onnx=true", "training.cuda_process_sharing=mps", "training.device=cuda:1",
     "training.wandb_project=x", "training.wandb_tags=[a,b]", "training.play_steps=7",
     "training.use_compile=true", "training.nan_guard.buffer_size=9"],
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


def test_the_defaults_all_work(conf):
    assert unsupported_settings(compose("sac", "walk", conf=conf), has_gpu=False) == []


def test_cuda_is_fine_where_there_is_a_gpu(conf):
    config = compose("sac", "walk", overrides=["training.device=cuda"], conf=conf)
    assert unsupported_settings(config, has_gpu=True) == []
