"""policy.onnx computes what policy.pt computes, for every kind of policy."""

import json

import numpy as np
import pytest
import torch

from unilab_core.nets import onnx_file
from unilab_core.nets.gaussian import GaussianPolicy, GaussianSpec
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.onnx_file import OnnxExportError, OnnxUnavailableError, export_onnx
from unilab_core.nets.policy_file import Policy
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor

O, A = 7, 3  # noqa: E741 - the legend's letters
CONTRACT = {
    "task": "t", "sim": "mujoco", "algo": "sac", "obs_width": O, "action_width": A,
    "obs_terms": [["gyro", 3], ["rest", 4]], "env": {"physics": "fast"}, "iteration": 7,
}  # fmt: skip


def normalizer():
    made = ObsNormalizer(O)
    made.update(torch.randn(200, O) * 3 + 1)
    return made


def squashed(activation="silu", layer_norm=True):
    actor = SquashedGaussianActor(
        ActorSpec(
            obs_width=O, hidden_dims=(16, 8), activation=activation, layer_norm=layer_norm,
            log_std_min=-5.0, log_std_max=0.0, mean_limit=10.0,
            action_low=(-1.0, -2.0, 0.0), action_high=(1.0, 2.0, 0.5),
        )
    )  # fmt: skip
    torch.nn.init.normal_(actor.net[-1].weight)
    return actor


def gaussian(activation="elu", normalize=True, clip=5.0):
    spec = GaussianSpec(
        obs_width=O, action_width=A, hidden_dims=(16, 8), activation=activation,
        obs_normalization=normalize, obs_clip=clip,
    )  # fmt: skip
    policy = GaussianPolicy(spec)
    if policy.normalizer is not None:
        policy.normalizer.update(torch.randn(200, O) * 3 + 1)
    return policy


POLICIES = {
    "sac": lambda: Policy(squashed(), normalizer(), CONTRACT),
    "sac without normaliser": lambda: Policy(squashed("relu", False), None, CONTRACT),
    "ppo": lambda: Policy(gaussian(), None, CONTRACT),
    "appo": lambda: Policy(gaussian("tanh", False, 0.0), None, CONTRACT),
}


@pytest.fixture(params=["runtime", "reference"])
def evaluator(request, monkeypatch):
    """Whoever checks the file: onnxruntime where it is installed, else onnx itself."""
    pytest.importorskip("onnx", reason=onnx_file.INSTALL)
    if request.param == "runtime":
        pytest.importorskip("onnxruntime", reason=onnx_file.INSTALL)
    else:
        monkeypatch.setattr(onnx_file, "is_installed", lambda name: name == "onnx")
    return request.param


@pytest.mark.parametrize("kind", POLICIES)
def test_the_file_computes_what_torch_computes(kind, evaluator, tmp_path):
    torch.manual_seed(3)
    policy = POLICIES[kind]()
    path = tmp_path / "policy.onnx"
    assert export_onnx(policy, path) < 1e-4
    assert [found.name for found in tmp_path.iterdir()] == ["policy.onnx"]
    evaluate = onnx_file._evaluator(path.read_bytes())
    for num_rows in (1, 3):  # the batch is free
        obs = np.random.default_rng(num_rows).normal(0, 2, (num_rows, O)).astype(np.float32)
        np.testing.assert_allclose(evaluate(obs), policy.act(obs), atol=1e-5, rtol=1e-4)


def test_the_contract_travels_with_the_file(evaluator, tmp_path):
    onnx = pytest.importorskip("onnx")
    export_onnx(POLICIES["sac"](), tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    (entry,) = (each for each in model.metadata_props if each.key == onnx_file.METADATA_KEY)
    assert json.loads(entry.value) == CONTRACT
    assert [each.name for each in model.graph.input] == ["obs"]
    assert [each.name for each in model.graph.output] == ["actions"]


def test_a_file_that_computes_something_else_is_not_kept(evaluator, tmp_path, monkeypatch):
    policy = POLICIES["ppo"]()
    model = onnx_file._export(policy)
    with torch.no_grad():
        policy.module.actor.net[0].bias[0] += 0.5
    monkeypatch.setattr(onnx_file, "_export", lambda _policy: model)
    with pytest.raises(OnnxExportError, match="differs from torch by 0"):
        export_onnx(policy, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_cannot_be_traced_is_an_error_of_one_line(tmp_path):
    pytest.importorskip("onnx", reason=onnx_file.INSTALL)

    class Odd(SquashedGaussianActor):
        def act(self, obs):
            return torch.linalg.lu_factor(obs.T @ obs)[0][:, :A]

    policy = Policy(Odd(squashed().spec), None, CONTRACT)
    with pytest.raises(OnnxExportError) as caught:
        export_onnx(policy, tmp_path / "policy.onnx")
    assert "\n" not in str(caught.value)


def test_without_the_package_the_install_line_is_the_error(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "is_installed", lambda _name: False)
    with pytest.raises(OnnxUnavailableError, match=r"pip install 'unilab-rl\[onnx\]'"):
        export_onnx(POLICIES["sac"](), tmp_path / "policy.onnx")
