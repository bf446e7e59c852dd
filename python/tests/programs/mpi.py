"""A program that takes its rank from MPI alone, as many do."""

from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank + 1)
library = MPI.Get_library_version().split()[0]
print(f"rank {comm.rank} of {comm.size}: {total} by {library}", flush=True)
comm.Barrier()
