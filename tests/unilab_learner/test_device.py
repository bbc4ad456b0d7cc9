"""Device choice and bf16."""

import pytest
import torch

from unilab_learner.device import cpu_flags, resolve_amp, resolve_device

CPU = torch.device("cpu")


def cpuinfo(tmp_path, flags):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: fpu {flags} sse2\nbogomips : 1\n")
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx2 avx512f", False), ("avx512_bf16", True), ("amx_bf16 amx_tile", True)],
)
def test_auto_asks_the_cpu_for_native_bf16_products(tmp_path, flags, expected):
    assert resolve_amp("auto", CPU, cpuinfo(tmp_path, flags)) is expected


def test_an_explicit_choice_is_taken_as_it_is(tmp_path):
    assert resolve_amp(True, CPU, cpuinfo(tmp_path, "avx2")) is True
    assert resolve_amp(False, CPU, cpuinfo(tmp_path, "avx512_bf16")) is False


def test_without_cpuinfo_there_are_no_flags(tmp_path):
    assert cpu_flags(tmp_path / "missing") == frozenset()


def test_auto_never_picks_mps_and_falls_back_to_the_cpu():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="cuda:1"):
        resolve_device("cuda:1")
