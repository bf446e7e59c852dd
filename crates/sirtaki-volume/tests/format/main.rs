//! Every format against a plain array in memory, and what each of them says about files that are not right.

mod array;
mod refusals;
mod regions;
mod zarr;
