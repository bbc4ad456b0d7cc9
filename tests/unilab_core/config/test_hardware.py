"""A GPU is found without importing torch."""

from unilab_core.config.hardware import detect_profile


def test_no_device_node_means_cpu(tmp_path):
    (tmp_path / "dev").mkdir()
    assert detect_profile({"PATH": ""}, tmp_path) == "cpu"


def test_a_device_node_means_gpu_unless_it_is_hidden(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert detect_profile({}, tmp_path) == "gpu"
    assert detect_profile({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == "gpu"
    assert detect_profile({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == "cpu"
    assert detect_profile({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == "cpu"


def test_the_control_node_alone_is_not_a_gpu(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert detect_profile({"PATH": ""}, tmp_path) == "cpu"


def test_wsl_needs_the_tool_beside_the_device(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "dxg").touch()
    tool = tmp_path / "nvidia-smi"
    assert detect_profile({"PATH": str(tmp_path)}, tmp_path) == "cpu"
    tool.touch(mode=0o755)
    assert detect_profile({"PATH": str(tmp_path)}, tmp_path) == "gpu"
