//! The checks every communicator has to pass, whatever carries its bytes.
//!
//! A value check is a function of one rank's communicator that all ranks run at once: as threads over a factory
//! ([`conformance!`](crate::conformance!) makes named tests of them), or as processes, each calling
//! [`check_all_as_rank`]. Fault checks need all ranks in one process, because ranks behave differently on purpose.

pub mod fault;
pub mod group;
pub mod moving;
pub mod random;
pub mod reducing;

use sirtaki_comm::Communicator;

use crate::team::{Make, Team};

/// A check that every rank of a group runs at the same time.
pub type Check = fn(&mut dyn Communicator);

/// A check over groups of these sizes in which ranks behave differently.
pub type FaultCheck = fn(Make<'_>, &[usize]);

/// The value checks with their names.
pub const VALUES: &[(&str, Check)] = &[
    ("all_reduce_every_type", reducing::all_reduce_every_type),
    ("all_reduce_large", reducing::all_reduce_large),
    ("factors", reducing::factors),
    ("averages_do_not_overflow", reducing::averages_do_not_overflow),
    ("nan_and_wrap_around", reducing::nan_and_wrap_around),
    ("same_bits_everywhere_and_always", reducing::same_bits_everywhere_and_always),
    ("reduce_to_every_root", reducing::reduce_to_every_root),
    ("reduce_scatter_uneven", reducing::reduce_scatter_uneven),
    ("broadcast_from_every_root", moving::broadcast_from_every_root),
    ("all_gather_uneven", moving::all_gather_uneven),
    ("all_to_all_uneven", moving::all_to_all_uneven),
    ("gather_and_scatter", moving::gather_and_scatter),
    ("send_and_receive", moving::send_and_receive),
    ("many_barriers", moving::many_barriers),
    ("split_into_colours", group::split_into_colours),
    ("split_used_concurrently", group::split_used_concurrently),
    ("invalid_calls_do_no_harm", fault::invalid_calls_do_no_harm),
];

/// The fault checks with their names.
pub const FAULTS: &[(&str, FaultCheck)] = &[
    ("barrier_waits_for_all", fault::barrier_waits_for_all),
    ("mismatch_of_count", fault::mismatch_of_count),
    ("mismatch_of_type", fault::mismatch_of_type),
    ("mismatch_of_operation", fault::mismatch_of_operation),
    ("mismatch_of_reduction", fault::mismatch_of_reduction),
    ("mismatch_of_factors", fault::mismatch_of_factors),
    ("mismatch_of_root", fault::mismatch_of_root),
    ("mismatch_of_counts", fault::mismatch_of_counts),
    ("stopper_ends_a_wait", fault::stopper_ends_a_wait),
];

/// Runs a value check in groups of these sizes, with ranks as threads.
pub fn as_threads(make: Make<'_>, sizes: &[usize], check: Check) {
    for &size in sizes {
        Team::new(make, size).each(|comm| check(comm));
    }
}

/// Runs every check in groups of these sizes, with ranks as threads.
pub fn run_all(make: Make<'_>, sizes: &[usize]) {
    VALUES.iter().for_each(|(_, check)| as_threads(make, sizes, *check));
    FAULTS.iter().for_each(|(_, check)| check(make, sizes));
    random::random_calls(make, sizes);
}

/// Runs every value check as one rank of a group whose other ranks, elsewhere, do the same. Returns their names.
pub fn check_all_as_rank(comm: &mut dyn Communicator) -> Vec<&'static str> {
    let run = |&(name, check): &(&'static str, Check)| {
        check(comm);
        name
    };
    VALUES.iter().map(run).collect()
}

/// The named check, for tests made by [`conformance!`](crate::conformance!).
#[doc(hidden)]
pub fn run_one(name: &str, make: Make<'_>, sizes: &[usize]) {
    let value = VALUES.iter().find(|(known, _)| *known == name);
    let fault = FAULTS.iter().find(|(known, _)| *known == name);
    match (value, fault) {
        (Some((_, check)), _) => as_threads(make, sizes, *check),
        (_, Some((_, check))) => check(make, sizes),
        _ => panic!("there is no check `{name}`"),
    }
}

/// Makes a module of tests, one per check, for a back end: its name, a `fn(usize) -> Vec<Box<dyn Communicator>>` that
/// makes all ranks of a group, and the sizes of groups to try.
///
/// ```
/// sirtaki_tests::conformance!(arena, sirtaki_tests::make::arena, [2, 3, 4, 7]);
/// ```
#[macro_export]
macro_rules! conformance {
    ($module:ident, $make:expr, $sizes:expr) => {
        #[cfg(test)]
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn random_calls() {
                $crate::conformance::random::random_calls(&$make, &$sizes);
            }

            $crate::conformance_tests! { $make, $sizes;
                all_reduce_every_type all_reduce_large factors averages_do_not_overflow nan_and_wrap_around
                same_bits_everywhere_and_always reduce_to_every_root reduce_scatter_uneven broadcast_from_every_root
                all_gather_uneven all_to_all_uneven gather_and_scatter send_and_receive many_barriers
                split_into_colours split_used_concurrently invalid_calls_do_no_harm barrier_waits_for_all
                mismatch_of_count mismatch_of_type mismatch_of_operation mismatch_of_reduction mismatch_of_factors
                mismatch_of_root mismatch_of_counts stopper_ends_a_wait
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr, $sizes:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $crate::conformance::run_one(stringify!($name), &$make, &$sizes);
        })*

        #[test]
        fn no_check_is_left_out() {
            let (values, faults) = ($crate::conformance::VALUES, $crate::conformance::FAULTS);
            assert_eq!(values.len() + faults.len(), [$(stringify!($name)),*].len(), "`conformance!` lists all checks");
        }
    };
}
