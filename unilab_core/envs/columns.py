"""Float32 blocks stored column-wise: one contiguous row of memory per quantity.

Terms see arrays of shape [E, w] whose columns are contiguous, so that arithmetic on a column runs
over E consecutive numbers. Rows of memory are padded: with 1024 environments they would otherwise
lie exactly 4096 bytes apart, and copying across them would use a few cache sets only (six times
slower).
"""

import numpy as np

from unilab_core.contracts import FloatArray

_PADDING = 16


def padded(num_rows: int) -> int:
    """Numbers per column in memory."""
    return num_rows + _PADDING


def column_block(num_columns: int, num_rows: int) -> FloatArray:
    """Zeros, [num_columns, num_rows]: index it by column; its transpose is what terms see."""
    return np.zeros((num_columns, padded(num_rows)), np.float32)[:, :num_rows]
