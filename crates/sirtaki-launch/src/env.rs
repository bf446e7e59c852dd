//! The variables of a job's processes; what they mean is in [`sirtaki_engine::job::variables`].

pub(crate) use sirtaki_engine::job::{Lookup, variables::*};
