//! Which MPI library to load: the one the user names, or the family that fits the launcher.
//!
//! A launcher works only with the library it belongs to: an MPICH under Open MPI's `mpirun` would see a world of one
//! process in every process. The environment tells which launcher started us; it is passed in, so this is a pure
//! function.

use std::path::PathBuf;

/// Libraries with one binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI and what is built from it.
    OpenMpi,
    /// MPICH, Intel MPI, Cray MPICH, MVAPICH.
    Mpich,
}

impl Family {
    /// The family's name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
        }
    }
}

/// What is known before anything is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The library to use, whatever else is known.
    pub path: Option<PathBuf>,
    /// The family of the launcher, if one is recognised.
    pub family: Option<Family>,
    /// The launcher works with its own family only.
    pub strict: bool,
    /// How many processes the launcher says it started.
    pub size: Option<usize>,
}

impl Choice {
    /// The choice that an environment suggests; `get` looks up a variable.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| get(name).and_then(|text| text.trim().parse().ok());
        let slurm = get("SLURM_STEP_ID").is_some();
        if get("OMPI_COMM_WORLD_SIZE").is_some() {
            let size = number("OMPI_COMM_WORLD_SIZE");
            return Self { path: None, family: Some(Family::OpenMpi), strict: true, size };
        }
        if get("PMI_RANK").is_some() || get("MPI_LOCALNRANKS").is_some() {
            let size = number("PMI_SIZE").or_else(|| number("SLURM_STEP_NUM_TASKS"));
            return Self { path: None, family: Some(Family::Mpich), strict: !slurm, size };
        }
        if get("PMIX_RANK").is_some() {
            let size = number("SLURM_STEP_NUM_TASKS");
            return Self { path: None, family: Some(Family::OpenMpi), strict: false, size };
        }
        Self::default()
    }

    /// Whether an MPI launcher started this process.
    pub fn is_launched(&self) -> bool {
        self.family.is_some()
    }

    /// The same with the library the user named, if any.
    #[must_use]
    pub fn with_path(mut self, path: Option<PathBuf>) -> Self {
        self.path = path;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Family};

    fn choice(variables: &[(&str, &str)]) -> Choice {
        Choice::from_environment(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn launchers_are_told_apart() {
        assert!(!choice(&[("HOME", "/")]).is_launched());
        let open = choice(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")]);
        assert_eq!((open.family, open.strict, open.size), (Some(Family::OpenMpi), true, Some(4)));
        let hydra = choice(&[("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")]);
        assert_eq!((hydra.family, hydra.strict, hydra.size), (Some(Family::Mpich), true, Some(3)));
        let slurm = choice(&[("SLURM_STEP_ID", "0"), ("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")]);
        assert_eq!((slurm.family, slurm.strict, slurm.size), (Some(Family::OpenMpi), false, Some(8)));
    }
}
