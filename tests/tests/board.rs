//! The checks can be passed: by the simplest communicator there is, in groups of any size and one process per rank.

use sirtaki_tests::{board::Board, conformance, team::Team};

sirtaki_tests::conformance!(board, Board::make, [1, 2, 3, 4, 7]);

#[test]
fn one_communicator_passes_all_checks_in_a_row() {
    Team::new(&Board::make, 3)
        .each(|comm| assert_eq!(conformance::check_all_as_rank(comm).len(), conformance::VALUES.len()));
}
