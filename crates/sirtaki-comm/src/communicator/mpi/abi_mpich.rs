//! The constants of MPICH and of the libraries that promise its binary interface (Intel MPI, Cray MPICH, MVAPICH):
//! handles are 32-bit numbers whose bits encode kind and size.

use std::ffi::c_int;

use super::table::Constants;

const fn handle(bits: u32) -> c_int {
    bits as c_int
}

/// The constants, the same in every library of the family.
pub(super) const CONSTANTS: Constants<c_int> = Constants {
    world: handle(0x4400_0000),
    errors_return: handle(0x5400_0001),
    types: [
        handle(0x4c00_0137),
        handle(0x4c00_013b),
        handle(0x4c00_0238),
        handle(0x4c00_0439),
        handle(0x4c00_083a),
        handle(0x4c00_040a),
        handle(0x4c00_080b),
    ],
    ops: [handle(0x5800_0003), handle(0x5800_0002), handle(0x5800_0001), handle(0x5800_0004)],
    in_place: usize::MAX,
    // Up to MPICH 4.1, a root other than rank 0 among processes of one host reads from the address that means "in
    // place" and crashes.
    reduces_in_place: false,
    status_ignore: 1,
    any_source: -2,
};
