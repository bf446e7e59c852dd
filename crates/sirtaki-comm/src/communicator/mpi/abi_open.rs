//! Open MPI's constants: handles are addresses of objects the library exports.

use libloading::os::unix::Library;

use super::{raw::MpiOp, raw::Type, table::Constants};
use crate::CommError;

/// Exported by every Open MPI and by no other library.
pub(super) const MARK: &str = "ompi_mpi_comm_world";

fn address(library: &Library, symbol: &str) -> Result<usize, CommError> {
    // SAFETY: only the address is taken, nothing is read or called through it.
    let found = unsafe { library.get::<*mut u8>(format!("{symbol}\0").as_bytes()) };
    match found {
        Ok(symbol) => Ok(symbol.into_raw() as usize),
        Err(error) => Err(CommError::Unavailable { what: symbol.into(), reason: error.to_string() }),
    }
}

/// The constants of this loaded library.
pub(super) fn constants(library: &Library) -> Result<Constants<usize>, CommError> {
    let find = |symbol: &str| address(library, symbol);
    let mut types = [0; Type::COUNT];
    let names = ["int8_t", "uint8_t", "int16_t", "int32_t", "int64_t", "float", "double"];
    for (handle, name) in types.iter_mut().zip(names) {
        *handle = find(&format!("ompi_mpi_{name}"))?;
    }
    let mut ops = [0; MpiOp::COUNT];
    for (handle, name) in ops.iter_mut().zip(["sum", "min", "max", "prod"]) {
        *handle = find(&format!("ompi_mpi_op_{name}"))?;
    }
    Ok(Constants {
        world: find(MARK)?,
        errors_return: find("ompi_mpi_errors_return")?,
        types,
        ops,
        in_place: 1,
        reduces_in_place: true,
        status_ignore: 0,
        any_source: -1,
    })
}
