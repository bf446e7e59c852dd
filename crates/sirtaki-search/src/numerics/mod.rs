//! The numerics that model-based samplers need, written here: a search should give the same suggestions wherever and
//! with whatever versions it runs, and matrices of a few hundred rows need no library.

pub(crate) mod dense;
pub(crate) mod eigen;
pub(crate) mod exponential;
pub(crate) mod lbfgs;
pub(crate) mod normal;
