//! Containers: which one this is, and whether its MPI fits the launcher that started it.
//!
//! The host's `mpirun` starts the container, and the library in it has to be of that launcher's family; otherwise every
//! process sees a world of one. The launcher is known by its variables. The host's library cannot be seen from inside,
//! so nothing is said about versions, nor about `srun`, which serves both families.

use std::path::Path;

use sirtaki_comm::communicator::mpi::{Choice, Family};

use super::finding::Finding;
use crate::env;

/// What shows that this is a container: a variable or a file, and what to call it.
const SIGNS: [(&str, &str); 6] = [
    ("APPTAINER_CONTAINER", "Apptainer"),
    ("SINGULARITY_CONTAINER", "Singularity"),
    ("/.dockerenv", "Docker"),
    ("/run/.containerenv", "Podman"),
    ("/ch/environment", "Charliecloud"),
    ("container", "a container"),
];

/// The container, and the launcher beside the families of MPI that were found.
pub(super) fn examine(families: &[Family]) -> Vec<Finding> {
    // Our own launcher sets Open MPI's variables, too, for programs that ask them for their rank.
    let ours = env::process(env::RANK).is_some();
    let choice = if ours { Choice::default() } else { Choice::from_environment(env::process) };
    let kind = kind(&|name| env::process(name).is_some(), &|path| path.exists());
    findings(kind, &choice, families)
}

fn kind(is_set: &dyn Fn(&str) -> bool, exists: &dyn Fn(&Path) -> bool) -> Option<&'static str> {
    let shows = |sign: &str| if sign.starts_with('/') { exists(Path::new(sign)) } else { is_set(sign) };
    SIGNS.iter().find(|(sign, _)| shows(sign)).map(|(_, kind)| *kind)
}

fn findings(kind: Option<&str>, choice: &Choice, families: &[Family]) -> Vec<Finding> {
    let mut found: Vec<Finding> = kind.map(|kind| Finding::ok("container", kind)).into_iter().collect();
    if let (Some(launcher), true) = (choice.family, choice.strict) {
        found.push(fit(launcher, families, kind.is_some()));
    }
    found
}

fn fit(launcher: Family, families: &[Family], inside: bool) -> Finding {
    let (title, name) = ("MPI launcher", launcher.name());
    if families.contains(&launcher) {
        return Finding::ok(title, format!("that of {name}, which is here, too"));
    }
    let others: Vec<&str> = families.iter().map(|family| family.name()).collect();
    let here = if others.is_empty() { "no MPI".to_owned() } else { format!("only {}", others.join(", ")) };
    let place = if inside { "in the container" } else { "here" };
    let hint = format!(
        "every process would be alone: install {name} {place}, in the version that the launcher has, or start the job \
         with `sirtaki run`, which needs no MPI"
    );
    Finding::warning(title, format!("that of {name}, but {here} is {place}"), hint)
}

#[cfg(test)]
mod tests {
    use super::{
        super::finding::State,
        {Choice, Family, findings, kind},
    };

    fn launched(family: Family, strict: bool) -> Choice {
        Choice { family: Some(family), strict, ..Choice::default() }
    }

    #[test]
    fn containers_are_known_by_variables_and_files() {
        let found = |sign: &str| kind(&|name| name == sign, &|path| path.to_str() == Some(sign));
        assert_eq!(found("APPTAINER_CONTAINER"), Some("Apptainer"));
        assert_eq!(found("/.dockerenv"), Some("Docker"));
        assert_eq!(found("HOME"), None);
    }

    #[test]
    fn a_library_of_another_family_than_the_launcher_s_is_a_warning() {
        let wrong = findings(Some("Apptainer"), &launched(Family::OpenMpi, true), &[Family::Mpich]);
        let [container, launcher] = wrong.as_slice() else { panic!("{wrong:?}") };
        assert_eq!((container.state, container.value.as_str()), (State::Ok, "Apptainer"));
        assert_eq!(launcher.state, State::Warning);
        assert_eq!(launcher.value, "that of Open MPI, but only MPICH is in the container");
        assert!(launcher.hint.as_ref().is_some_and(|hint| hint.contains("install Open MPI in the container")));
        let none = findings(None, &launched(Family::Mpich, true), &[]);
        assert_eq!(none[0].value, "that of MPICH, but no MPI is here");
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let both = [Family::Mpich, Family::OpenMpi];
        assert_eq!(findings(None, &launched(Family::OpenMpi, true), &both)[0].state, State::Ok);
        assert!(findings(None, &launched(Family::OpenMpi, false), &[Family::Mpich]).is_empty(), "srun serves both");
        assert!(findings(None, &Choice::default(), &[]).is_empty());
    }
}
