//! Tables of what starters set, and the places they mean; mistakes in them; and values that nobody would set.

use proptest::{collection::vec, prelude::*, sample::select};
use sirtaki_comm::{communicator::mpi::Family, secure::Secret};

use super::super::{Job, JobError, Meeting, Place, Position, discover, variables as v};

type Table<'a> = &'a [(&'a str, &'a str)];

const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const SIRTAKI: Table<'_> = &[(v::RANK, "1"), (v::SIZE, "4"), (v::STORE, "tcp://127.0.0.1:7000"), (v::SECRET, HEX)];
/// As found under Debian's Open MPI 4.1.
const OPEN_MPI: Table<'_> = &[
    ("OMPI_COMM_WORLD_RANK", "3"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("OMPI_MCA_orte_ess_num_procs", "4"),
    ("PMIX_RANK", "3"),
];
/// As found under Debian's MPICH 4.0.
const HYDRA: Table<'_> =
    &[("PMI_RANK", "2"), ("PMI_SIZE", "3"), ("PMI_FD", "6"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")];
const SRUN: Table<'_> = &[
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "4"),
    ("SLURM_NTASKS", "5"),
    ("SLURM_STEP_NUM_TASKS", "5"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "1"),
    ("SLURM_STEP_NUM_NODES", "2"),
    ("SLURM_STEP_TASKS_PER_NODE", "3,2"),
    ("HOME", "/home/a"),
];
/// As found under `torchrun` of PyTorch 2.
const TORCHRUN: Table<'_> = &[
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_b/attempt_0/1/error.json"),
    ("RANK", "1"),
    ("WORLD_SIZE", "2"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("GROUP_RANK", "0"),
    ("GROUP_WORLD_SIZE", "1"),
    ("MASTER_ADDR", "localhost"),
    ("MASTER_PORT", "29500"),
    ("XDG_CACHE_HOME", "/cache"),
    ("HOME", "/home/a"),
];

/// The place in these tables, where the last one counts for a variable in several.
fn place(tables: &[Table<'_>]) -> Result<Place, JobError> {
    let all: Vec<_> = tables.iter().rev().copied().flatten().collect();
    discover(&|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

fn at(rank: usize, size: usize) -> Option<Position> {
    Some(Position { rank, size })
}

#[test]
fn every_starter_is_recognised() {
    let found = place(&[SIRTAKI, &[(v::LOCAL_RANK, "0"), (v::LOCAL_SIZE, "2")]]).unwrap();
    let meeting = Meeting::Store {
        address: "127.0.0.1:7000".parse().unwrap(),
        secret: Secret::from_hex(HEX).unwrap(),
        tls: false,
    };
    assert_eq!(found, Place { rank: 1, size: 4, local: at(0, 2), cross: None, meeting });

    for (table, family, rank, size, local) in
        [(OPEN_MPI, Family::OpenMpi, 3, 4, at(1, 2)), (HYDRA, Family::Mpich, 2, 3, at(0, 2))]
    {
        let found = place(&[table, &[(v::MPI, "/opt/libmpi.so")]]).unwrap();
        assert_eq!((found.rank, found.size, found.local, found.cross), (rank, size, local, None));
        let Meeting::Mpi(choice) = found.meeting else { panic!("{found:?}") };
        assert_eq!((choice.family, choice.size), (Some(family), Some(size)));
        assert_eq!(choice.path.as_deref(), Some("/opt/libmpi.so".as_ref()));
    }

    let found = place(&[SRUN]).unwrap();
    assert_eq!((found.rank, found.size, found.local, found.cross), (4, 5, at(1, 2), at(1, 2)));
    let Meeting::Folder { cache, by_parent: false, .. } = found.meeting else { panic!("{found:?}") };
    assert_eq!(cache.to_str(), Some("/home/a/.cache"));

    let found = place(&[TORCHRUN]).unwrap();
    assert_eq!((found.rank, found.size, found.local, found.cross), (1, 2, at(1, 2), at(0, 1)));
    let Meeting::Folder { cache, by_parent: false, .. } = found.meeting else { panic!("{found:?}") };
    assert_eq!(cache.to_str(), Some("/cache"));

    assert_eq!(place(&[]).unwrap(), Place::alone());
}

#[test]
fn the_innermost_starter_counts() {
    let rank_and_size = |tables: &[Table<'_>]| place(tables).map(|place| (place.rank, place.size)).unwrap();
    assert_eq!(rank_and_size(&[SRUN, OPEN_MPI, TORCHRUN, SIRTAKI]), (1, 4), "sirtaki run sets names of others");
    assert_eq!(rank_and_size(&[SRUN, OPEN_MPI, TORCHRUN]), (1, 2), "srun mpirun torchrun");
    assert_eq!(rank_and_size(&[SRUN, OPEN_MPI]), (3, 4), "srun mpirun");
    assert_eq!(rank_and_size(&[SRUN, HYDRA]), (2, 3), "Hydra starts its helpers with srun");
    assert_eq!(rank_and_size(&[SRUN, &[("PMIX_RANK", "4")], HYDRA]), (2, 3), "and srun may offer PMIx");
    let pmi = &[("PMI_RANK", "4"), ("PMI_SIZE", "5"), ("PMIX_RANK", "4")];
    assert!(matches!(place(&[SRUN, pmi]).unwrap().meeting, Meeting::Folder { .. }), "srun offers PMI to whoever asks");
    let for_others =
        &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("RANK", "1"), ("WORLD_SIZE", "2")];
    assert_eq!(place(&[for_others]).unwrap(), Place::alone(), "names that are set for everybody");
    let batch = &[("SLURM_STEP_ID", ""), ("SLURM_STEP_NUM_TASKS", "")];
    assert_eq!(place(&[SRUN, batch]).unwrap(), Place::alone(), "a batch script is no step");
}

#[test]
fn the_only_rank_meets_nobody() {
    let one = [
        (OPEN_MPI, [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]),
        (HYDRA, [("PMI_RANK", "0"), ("PMI_SIZE", "1")]),
    ];
    for (table, changes) in &one {
        assert_eq!(place(&[table, changes]).unwrap(), Place::alone());
    }
    let one = &[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"), ("HOME", "")];
    assert_eq!(place(&[TORCHRUN, one]).unwrap(), Place::alone());
    let one = &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_STEP_NUM_NODES", "")];
    assert_eq!(place(&[SRUN, one]).unwrap(), Place::alone());
}

#[test]
fn ranks_of_a_job_have_one_key_and_jobs_have_different_ones() {
    let key = |tables: &[Table<'_>]| match place(tables).unwrap().meeting {
        Meeting::Folder { key, by_parent, .. } => (key, by_parent),
        other => panic!("{other:?}"),
    };
    let rank_0: Table<'_> = &[
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_b/attempt_0/0/error.json"),
    ];
    assert_eq!(key(&[TORCHRUN, rank_0]), key(&[TORCHRUN]));
    assert_eq!(key(&[SRUN, &[("SLURM_PROCID", "0"), ("SLURM_NODEID", "0")]]), key(&[SRUN]));
    let other = [
        ("TORCHELASTIC_RUN_ID", "other"),
        ("TORCHELASTIC_RESTART_COUNT", "1"),
        ("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_a/none_c/attempt_0/1/error.json"),
        ("MASTER_ADDR", "b"),
        ("MASTER_PORT", "29501"),
    ];
    for change in other {
        assert_ne!(key(&[TORCHRUN, &[change]]), key(&[TORCHRUN]), "{change:?}");
    }
    let parent = [("TORCHELASTIC_ERROR_FILE", ""), ("TORCHELASTIC_ERROR_FILE", "/tmp/errors.json")];
    assert!(parent.iter().all(|change| key(&[TORCHRUN, &[*change]]).1), "no folder tells this job from others");
    assert!(!key(&[TORCHRUN, &[("WORLD_SIZE", "4"), ("GROUP_WORLD_SIZE", "2")]]).1, "hosts have different parents");
    for change in
        [("SLURM_CLUSTER_NAME", "x"), ("SLURM_JOB_ID", "4712"), ("SLURM_STEP_ID", "3"), ("SLURM_RESTART_COUNT", "1")]
    {
        assert_ne!(key(&[SRUN, &[change]]), key(&[SRUN]), "{change:?}");
    }
}

#[test]
fn mistakes_name_the_variable_its_value_and_what_to_do() {
    let cases: &[(Table<'_>, (&str, &str), &str)] = &[
        (SIRTAKI, (v::RANK, "4"), "SIRTAKI_RANK is `4`, but must be below 4, which is SIRTAKI_SIZE"),
        (SIRTAKI, (v::RANK, "-1"), "SIRTAKI_RANK is `-1`, but must be a number"),
        (SIRTAKI, (v::SIZE, "0"), "SIRTAKI_SIZE is `0`, but must be a number above zero"),
        (SIRTAKI, (v::SIZE, ""), "SIRTAKI_RANK is `1`, but SIRTAKI_SIZE, which belongs to it, is not set"),
        (
            SIRTAKI,
            (v::LOCAL_SIZE, "2"),
            "SIRTAKI_LOCAL_SIZE is `2`, but SIRTAKI_LOCAL_RANK, which belongs to it, is not",
        ),
        (
            SIRTAKI,
            (v::STORE, "127.0.0.1:7000"),
            "SIRTAKI_STORE is `127.0.0.1:7000`, but must be tcp://ADDRESS:PORT or tls://ADDRESS:PORT",
        ),
        (SIRTAKI, (v::STORE, ""), "SIRTAKI_STORE is not set; it must be tcp://ADDRESS:PORT or tls://ADDRESS:PORT"),
        (SIRTAKI, (v::SECRET, ""), "SIRTAKI_SECRET is not set; it must be 64 hexadecimal digits"),
        (SIRTAKI, (v::SECRET, "hunter2"), "SIRTAKI_SECRET is `(not shown)`, but must be 64 hexadecimal digits"),
        (&[], (v::STORE, "tcp://127.0.0.1:1"), "SIRTAKI_RANK is not set; it must be a number from 0"),
        (
            OPEN_MPI,
            ("OMPI_COMM_WORLD_SIZE", "3"),
            "OMPI_COMM_WORLD_RANK is `3`, but must be below 3, which is OMPI_COMM",
        ),
        (
            OPEN_MPI,
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "9"),
            "OMPI_COMM_WORLD_LOCAL_SIZE is `9`, but must be at most 4, which",
        ),
        (HYDRA, ("PMI_SIZE", ""), "PMI_RANK is `2`, but PMI_SIZE, which belongs to it, is not set"),
        (HYDRA, ("PMI_RANK", "two"), "PMI_RANK is `two`, but must be a number"),
        (SRUN, ("SLURM_PROCID", ""), "SLURM_STEP_NUM_TASKS is `5`, but SLURM_PROCID, which belongs to it, is not set"),
        (SRUN, ("SLURM_PROCID", "5"), "SLURM_PROCID is `5`, but must be below 5, which is SLURM_STEP_NUM_TASKS"),
        (
            SRUN,
            ("SLURM_LOCALID", "2"),
            "SLURM_LOCALID is `2`, but must be below 2, which SLURM_STEP_TASKS_PER_NODE has",
        ),
        (SRUN, ("SLURM_STEP_TASKS_PER_NODE", "5"), "SLURM_STEP_TASKS_PER_NODE is `5`, but must be such as 4(x2),1"),
        (SRUN, ("HOME", ""), "HOME is not set; it must be the user's folder"),
        (TORCHRUN, ("RANK", "2"), "RANK is `2`, but must be below 2, which is WORLD_SIZE"),
        (TORCHRUN, ("WORLD_SIZE", ""), "RANK is `1`, but WORLD_SIZE, which belongs to it, is not set"),
        (
            TORCHRUN,
            ("TORCHELASTIC_RESTART_COUNT", "once"),
            "TORCHELASTIC_RESTART_COUNT is `once`, but must be a number",
        ),
        (&[], ("TORCHELASTIC_RUN_ID", "a"), "TORCHELASTIC_RUN_ID is `a`, but RANK, which belongs to it, is not set"),
    ];
    for (table, change, expected) in cases {
        let error = place(&[table, &[*change]]).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{change:?} gives `{error}` instead of `{expected}`");
        let hint = error.hint().unwrap();
        assert!(["unset", "XDG_CACHE_HOME"].iter().any(|word| hint.contains(word)), "{hint}");
    }
}

#[test]
fn memory_for_the_record_is_a_process_and_a_descriptor() {
    let job =
        |record: &str| Job::discover(&|name| (name == v::RECORD).then(|| record.to_owned())).map(|job| job.record);
    assert_eq!((job("4711:5").unwrap(), job("").unwrap()), (Some((4711, 5)), None));
    for bad in ["4711", "4711:", ":5", "4711:-1", "a:b", "99999999999:1"] {
        let error = job(bad).unwrap_err().to_string();
        assert_eq!(error, format!("SIRTAKI_RECORD is `{bad}`, but must be {}", v::allowed(v::RECORD)));
    }
}

/// Values close to correct ones, and anything else.
fn value() -> impl Strategy<Value = String> {
    let near = ["", " ", "0", "1", "2", "-1", "18446744073709551615", "18446744073709551616", "0x1", "é", "1.5", HEX];
    let lists =
        ["2(x3),1", "1(x18446744073709551615),2", "2(x", "(x)", ",", "0(x0)", "tcp://[::1]:1", "/", "/1/e", "1:2"];
    prop_oneof![
        select(near.to_vec()).prop_map(String::from),
        select(lists.to_vec()).prop_map(String::from),
        "\\PC{0,12}"
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_values_make_discovery_panic_or_find_an_impossible_place(
        starters in vec(select(vec![SIRTAKI, OPEN_MPI, HYDRA, SRUN, TORCHRUN]), 0..3),
        changes in vec((any::<prop::sample::Index>(), value()), 0..6),
    ) {
        let mut all: Vec<(String, String)> =
            starters.iter().copied().flatten().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let names: Vec<&str> = [SIRTAKI, OPEN_MPI, HYDRA, SRUN, TORCHRUN].concat().iter().map(|(name, _)| *name)
            .chain(v::all().map(|variable| variable.name)).collect();
        for (index, value) in changes {
            let name = *index.get(&names);
            all.retain(|(known, _)| known != name);
            all.push((name.into(), value));
        }
        let get = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        match Job::discover(&get) {
            Ok(Job { place: Place { rank, size, local, cross, .. }, .. }) => {
                prop_assert!(rank < size);
                for Position { rank, size: part } in local.into_iter().chain(cross) {
                    prop_assert!(rank < part && part <= size);
                }
            }
            Err(error) => prop_assert!(error.hint().is_some(), "{error}"),
        }
    }
}
