"""X07: checkpoints and policies of any content are loaded, or refused; nothing in them is run."""

import hashlib
import os
import pickle
import random
import zipfile

import pytest
import torch

from unilab_core.nets.policy_file import (
    CONTRACT_KEYS,
    PolicyFileError,
    build_actor,
    load_policy,
    save_policy,
)
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor
from unilab_core.nets.torch_file import (
    MAGIC,
    TRAILER_BYTES,
    DamagedFileError,
    read_torch_file,
    write_torch_file,
)
from unilab_core.run.failures import CheckpointError
from unilab_core.tools.policy_source import find_policy
from unilab_learner.checkpoint import CheckpointStore

SPEC = ActorSpec(
    obs_width=2, hidden_dims=(2,), activation="elu", layer_norm=False, log_std_min=-5.0,
    log_std_max=2.0, mean_limit=10.0, action_low=(-1.0,), action_high=(1.0,),
)  # fmt: skip
CONTRACT = {**dict.fromkeys(CONTRACT_KEYS, ""), "obs_width": 2, "action_width": 1, "iteration": 3}


class Evil:
    """Unpickling it runs a command."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def sealed(payload):
    """Any bytes with a trailer that fits them: a checksum says whether, not by whom."""
    digest = hashlib.sha256(payload).digest()
    return bytes(payload) + MAGIC + len(payload).to_bytes(8, "little") + digest


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.pt"
    save_policy(path, SquashedGaussianActor(SPEC), None, CONTRACT)
    return path


def evil_payloads(folder, marker):
    torch.save({"format": "unilab-policy", "x": Evil(marker)}, folder / "zip.pt")
    torch.save({"x": Evil(marker)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(folder / "hand.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(marker)))
        archive.writestr("archive/version", "3\n")
    return [
        (folder / "zip.pt").read_bytes(),
        (folder / "old.pt").read_bytes(),
        (folder / "hand.pt").read_bytes(),
        pickle.dumps(Evil(marker)),
        pickle.dumps({"format": "unilab-checkpoint", "x": Evil(marker)}, protocol=0),
    ]


def test_x07_a_file_that_would_run_a_command_is_refused_by_every_reader(tmp_path):
    marker = tmp_path / "executed"
    pickle.loads(pickle.dumps(Evil(marker)))  # the bait works
    assert marker.exists()
    marker.unlink()
    run_dir = tmp_path / "run"
    folder = run_dir / "checkpoints"
    folder.mkdir(parents=True)
    for payload in evil_payloads(tmp_path, marker):
        for raw in (payload, sealed(payload)):
            policy, checkpoint = run_dir / "policy.pt", folder / "checkpoint_00000001.pt"
            policy.write_bytes(raw)
            checkpoint.write_bytes(raw)
            with pytest.raises(DamagedFileError):
                read_torch_file(policy)
            with pytest.raises(PolicyFileError):
                load_policy(policy)
            with pytest.raises(CheckpointError):
                find_policy(run_dir, None)
            with pytest.raises(CheckpointError):
                find_policy(run_dir, "1")
            with pytest.raises(CheckpointError):
                CheckpointStore(folder).load(-1)
    assert not marker.exists()


def test_x07_the_torch_that_is_asked_for_has_its_loader_repaired(pytestconfig):
    """Before 2.10 a file could damage memory even through weights_only."""
    text = (pytestconfig.rootpath / "pyproject.toml").read_text()
    (line,) = [line for line in text.splitlines() if line.strip().startswith('"torch>=')]
    lowest = line.partition(">=")[2].partition(",")[0]
    assert tuple(map(int, lowest.split("."))) >= (2, 10)


def mutated(raw, rng):
    """A copy with flipped, cut, doubled or inserted bytes."""
    data = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0 | 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at : at + rng.randrange(1, 200)]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case 4:
                data[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"])
        if not data:
            return b""
    return bytes(data)


def test_x07_10_000_damaged_files_are_refused(policy, tmp_path):
    rng = random.Random(3)
    raw = policy.read_bytes()
    path = tmp_path / "damaged.pt"
    for _ in range(10_000):
        damaged = mutated(raw, rng)
        if damaged == raw:
            continue
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError):
            read_torch_file(path)


def test_x07_files_damaged_by_somebody_who_fits_the_checksum_are_errors_of_ours_at_most(
    policy, tmp_path
):
    rng = random.Random(4)
    raw = policy.read_bytes()[:-TRAILER_BYTES]
    path = tmp_path / "damaged.pt"
    refused = 0
    for _ in range(600):
        path.write_bytes(sealed(mutated(raw, rng)))
        try:
            contract = load_policy(path).contract
            assert (contract["obs_width"], contract["action_width"]) == (2, 1)
        except PolicyFileError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is fine
    assert refused > 300


WRONG = [
    ("actor", None),
    ("actor", {}),
    ("actor", {**SPEC.to_dict(), "obs_width": "wide"}),
    ("actor", {**SPEC.to_dict(), "obs_width": -1}),
    ("actor", {**SPEC.to_dict(), "hidden_dims": [1 << 40, 1 << 40]}),
    ("actor", {**SPEC.to_dict(), "hidden_dims": [1 << 20, 1 << 20]}),
    ("actor", {**SPEC.to_dict(), "activation": "__import__"}),
    ("actor", {**SPEC.to_dict(), "action_low": [1.0], "action_high": [0.0]}),
    ("weights", {}),
    ("weights", None),
    ("weights", {"x": 3}),
    ("normalizer", {"mean": torch.zeros(1)}),
    ("contract", {}),
    ("contract", []),
    ("contract", {**CONTRACT, "obs_width": 6}),
    ("contract", {**CONTRACT, "action_width": "1"}),
    ("contract", {**CONTRACT, "action_width": True}),
    ("contract", {**CONTRACT, "obs_width": torch.tensor([2, 2])}),
    ("kind", "pickle"),
    ("kind", ["unit_norm"]),
    ("version", "1"),
    ("version", None),
    ("format", 7),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_x07_a_policy_of_the_wrong_content_is_named_and_asks_for_no_memory(policy, key, value):
    content = read_torch_file(policy)
    write_torch_file(policy, {**content, key: value})
    with pytest.raises(PolicyFileError, match=r"policy\.pt: "):
        load_policy(policy)


@pytest.mark.parametrize("key", ["actor", "weights", "normalizer", "contract", "version", "format"])
def test_x07_a_policy_that_lacks_a_part_is_refused(policy, key):
    content = read_torch_file(policy)
    del content[key]
    write_torch_file(policy, content)
    with pytest.raises(PolicyFileError):
        load_policy(policy)


def test_x07_a_good_policy_is_still_loaded(policy):
    assert load_policy(policy).contract["iteration"] == 3
    assert isinstance(build_actor(read_torch_file(policy)), SquashedGaussianActor)
