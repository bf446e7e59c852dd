//! The states of trials and of a study, without a clock: times come in as numbers.
