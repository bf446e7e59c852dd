"""Questions that scripts ask about their communication library, with true answers.

Shared memory and TCP are always available, which is what scripts mean by Gloo; MPI is found at run
time, and so is NCCL, for tensors on GPUs; oneCCL and the like are not used.
"""

from __future__ import annotations

import sys

from sirtaki import _native
from sirtaki._core import job


def mpi_built() -> bool:
    """Whether ranks can communicate over MPI: always, if it is installed.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.mpi_built()
    True
    """
    return True


def mpi_enabled() -> bool:
    """Whether they do.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.mpi_enabled() != hvd.gloo_enabled()
    True
    """
    return "mpi" in job.engine().back_end


def mpi_threads_supported() -> bool:
    """Whether other libraries may use MPI alongside this one."""
    if not mpi_enabled():
        raise ValueError("MPI is not used; start the job with mpirun, or with srun --mpi")
    return False


def gloo_built() -> bool:
    """Whether ranks can communicate without MPI: always.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.gloo_built()
    True
    """
    return True


def gloo_enabled() -> bool:
    """Whether they do."""
    return not mpi_enabled()


def nccl_built() -> int:
    """The version of NCCL as one number, such as 22809; 0 if there is none that can be used.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.nccl_built() == 0 or hvd.nccl_built() >= 21400
    True
    """
    return _native.nccl_version()


def ddl_built() -> bool:
    """No."""
    return False


def ccl_built() -> bool:
    """No."""
    return False


def cuda_built() -> bool:
    """Whether tensors on CUDA devices can be used: if PyTorch is loaded and can use them."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.version.cuda is not None


def rocm_built() -> bool:
    """No."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Has rank 0 keep a timeline of all ranks in a new file, for chrome://tracing or Perfetto.

    All ranks may call it. ``mark_cycles`` has no meaning here: there are no cycles.

    >>> import os, tempfile, sirtaki.torch as hvd
    >>> hvd.init()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hvd.start_timeline(os.path.join(folder, "timeline.json"))
    ...     hvd.barrier()
    ...     hvd.stop_timeline()
    ...     os.listdir(folder)
    ['timeline.json']
    """
    job.engine().start_timeline(file_path)


def stop_timeline() -> None:
    """Ends the timeline; nothing happens if there is none."""
    job.engine().stop_timeline()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Does nothing: Horovod looks for its part compiled for PyTorch; here there is none."""
