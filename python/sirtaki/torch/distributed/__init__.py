"""Sirtaki as a back end of ``torch.distributed``, for DDP, FSDP and the checkpoint library.

Importing ``sirtaki.torch`` makes it known and lets ranks meet under every launcher:

>>> import torch, torch.distributed as dist
>>> import sirtaki.torch
>>> dist.init_process_group("sirtaki")
>>> tensor = torch.ones(2)
>>> dist.all_reduce(tensor)
>>> tensor.eq(dist.get_world_size()).all().item()
True
>>> dist.destroy_process_group()

# Layout

- ``meeting``: which ranks there are, and the engine that connects those of a group.
- ``group``: PyTorch's collectives, as requests of the engine; ``pairs``: sending and receiving.
- ``place``: a rank's place in a group; ``eager``: what ``torch.compile`` must leave alone.
- ``objects``: objects that PyTorch itself exchanges, protected.
- ``reductions``: what PyTorch's reductions are called here.
- ``lane``: requests in the order of the program, under ``names`` that follow from it.
- ``work``: waiting for them; ``completer``: threads for callers that have a future instead.
"""

from __future__ import annotations

import torch.distributed as dist

from sirtaki._torch_backend import register

if dist.is_available():
    from sirtaki.torch.distributed.meeting import serve_env
    from sirtaki.torch.distributed.objects import protect

    register()
    serve_env()
    protect()
