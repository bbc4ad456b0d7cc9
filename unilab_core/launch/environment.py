"""The environment variables that children get: a list of what passes, everything else stays here.

A secret that happens to be in the shell (a cloud key, a token of another tool) is of no use to a
training process and must not reach its logs or core dumps.
"""

from collections.abc import Mapping

PASSED = frozenset(
    {
        "CPATH",
        "DISPLAY",
        "HOME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LIBRARY_PATH",
        "LOGNAME",
        "MALLOC_ARENA_MAX",
        "NO_PROXY",
        "PATH",
        "SHELL",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "VERL_TRACE_DIR",
        "VIRTUAL_ENV",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
PASSED_PREFIXES = (
    "CONDA_",
    "COVERAGE_",
    "CUBLAS_",
    "CUDA_",
    "EGL_",
    "GOMP_",
    "KMP_",
    "LC_",
    "MESA_",
    "MKL_",
    "MUJOCO_",
    "NCCL_",
    "NUMBA_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYOPENGL_",
    "PYTHON",
    "PYTORCH_",
    "SSL_CERT_",
    "TORCH",
    "TRITON_",
    "UNILAB_",
    "WARP_",
    "XDG_",
)
LEARNER_PREFIXES = ("WANDB_",)
"""Credentials of the logger go to the one process that uses them."""
MONITOR_NAMES = frozenset({"COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"})
MONITOR_PREFIXES = ("TERM", "TEXTUAL", "TMUX")
"""How the panel may draw."""


def child_environ(
    parent: Mapping[str, str], role: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """What passes of `parent`, then the settings of this child."""
    names, prefixes = PASSED, PASSED_PREFIXES
    if role == "learner":
        prefixes += LEARNER_PREFIXES
    elif role == "monitor":
        names, prefixes = names | MONITOR_NAMES, prefixes + MONITOR_PREFIXES
    passed = {
        name: value for name, value in parent.items() if name in names or name.startswith(prefixes)
    }
    return {**passed, **settings}
