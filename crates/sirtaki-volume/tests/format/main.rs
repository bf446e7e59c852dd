//! Every format against a plain array in memory, and what each of them says about files that are not right.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod array;
mod damage;
mod hdf5;
mod large;
mod refusals;
mod regions;
mod zarr;
