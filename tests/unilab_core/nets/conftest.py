"""One thread for tiny networks."""

import torch

# A second thread only adds waiting, above all on a busy machine.
torch.set_num_threads(1)
