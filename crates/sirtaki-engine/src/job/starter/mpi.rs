//! `mpirun` of Open MPI, and Hydra, the launcher of MPICH and its relatives.

use sirtaki_comm::communicator::mpi::Choice;

use super::{
    super::{JobError, Lookup, Place, Position, parse::text, place::Meeting, variables},
    position,
};

/// Variables for rank and size.
type Names = (&'static str, &'static str);

const OPEN_WORLD: Names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
const OPEN_LOCAL: Names = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
const HYDRA_WORLD: Names = ("PMI_RANK", "PMI_SIZE");
const HYDRA_LOCAL: Names = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS");

/// The place an MPI launcher gives. Others set some of the same variables for programs that only look at those:
/// `sirtaki run` those of Open MPI, and `srun` those of Hydra. So each has to come with a variable that only its
/// launcher sets.
pub(crate) fn by_mpi(get: Lookup<'_>) -> Result<Option<Place>, JobError> {
    let is_set = |name: &&str| text(get, name).is_some();
    let open = ["PMIX_RANK", "PMIX_NAMESPACE", "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_ess_base_jobid"];
    let is_open = open.iter().any(is_set) && [OPEN_WORLD.0, OPEN_WORLD.1].iter().any(is_set);
    let is_hydra = is_set(&HYDRA_LOCAL.1) || !is_set(&"SLURM_STEP_ID");
    let (names, local_names) = match (is_open, is_hydra) {
        (true, _) => (OPEN_WORLD, OPEN_LOCAL),
        (false, true) => (HYDRA_WORLD, HYDRA_LOCAL),
        (false, false) => return Ok(None),
    };
    let Some(Position { rank, size }) = position(get, names, None)? else { return Ok(None) };
    if size == 1 {
        return Ok(Some(Place::alone()));
    }
    let local = position(get, local_names, Some((names.1, size)))?;
    let choice = Choice::from_environment(get).with_path(text(get, variables::MPI).map(Into::into));
    Ok(Some(Place { rank, size, local, cross: None, meeting: Meeting::Mpi(choice) }))
}
