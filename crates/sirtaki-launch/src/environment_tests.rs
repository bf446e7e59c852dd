use sirtaki_engine::job;

use super::*;

const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn place() -> Place {
    Place { rank: 5, size: 6, local_rank: 1, local_size: 2, cross_rank: 2, cross_size: 3 }
}

fn meeting() -> Meeting {
    Meeting {
        job: "j7".into(),
        store: "tcp://10.0.0.1:7000".into(),
        secret: Secret::from_hex(HEX).unwrap(),
        master_address: "10.0.0.1".into(),
        master_port: "7001".into(),
        workers: Cluster::default(),
        timeout: Duration::from_millis(2500),
        start_timeout: Duration::from_secs(60),
        tls: true,
    }
}

fn share() -> Share {
    Share {
        host: "c".into(),
        cores: vec![4, 5],
        gpus: Some(vec!["1".into(), "3".into()]),
        interface: Some(Interface { name: "eth1".into(), address: "10.0.0.3".into() }),
    }
}

fn get<'a>(all: &'a [(String, String)], name: &str) -> Option<&'a str> {
    all.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_rank_finds_its_place_under_every_name() {
    let all = of_rank(&place(), &meeting(), &share(), &|_| false);
    let expected = "SIRTAKI_RANK=5 SIRTAKI_SIZE=6 SIRTAKI_LOCAL_RANK=1 SIRTAKI_LOCAL_SIZE=2 SIRTAKI_CROSS_RANK=2 \
        SIRTAKI_CROSS_SIZE=3 SIRTAKI_JOB=j7 SIRTAKI_STORE=tcp://10.0.0.1:7000 SIRTAKI_TIMEOUT=2.5 \
        SIRTAKI_START_TIMEOUT=60 SIRTAKI_TLS=1 SIRTAKI_INTERFACE=10.0.0.3 HOROVOD_HOSTNAME=c RANK=5 WORLD_SIZE=6 \
        LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=3 ROLE_RANK=5 ROLE_WORLD_SIZE=6 \
        MASTER_ADDR=10.0.0.1 MASTER_PORT=7001 HOROVOD_RANK=5 HOROVOD_SIZE=6 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 \
        HOROVOD_CROSS_RANK=2 HOROVOD_CROSS_SIZE=3 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=6 \
        OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMP_NUM_THREADS=2 \
        PYTHONUNBUFFERED=1 GLOO_SOCKET_IFNAME=eth1 NCCL_SOCKET_IFNAME=eth1 CUDA_VISIBLE_DEVICES=1,3";
    let expected: Vec<_> = expected.split_whitespace().collect();
    let shown: Vec<_> =
        all.iter().filter(|(name, _)| name != env::SECRET).map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(shown, expected);
    assert_eq!(get(&all, env::SECRET), Some(HEX));
}

#[test]
fn the_engine_understands_what_the_launcher_says() {
    let mut all = of_rank(&place(), &meeting(), &share(), &|_| false);
    all.push(record((42, 7)));
    let found = job::Job::discover(&|name| get(&all, name).map(Into::into)).unwrap();
    let (address, secret) = ("10.0.0.1:7000".parse().unwrap(), Secret::from_hex(HEX).unwrap());
    let place = job::Place {
        rank: 5,
        size: 6,
        local: Some(job::Position { rank: 1, size: 2 }),
        cross: Some(job::Position { rank: 2, size: 3 }),
        meeting: job::Meeting::Store { address, secret, tls: false },
    };
    assert_eq!((found.place, found.record), (place, Some((42, 7))));
    assert_eq!((found.communication.timeout, found.communication.tls), (Duration::from_millis(2500), true));
    assert_eq!(found.communication.interface.as_deref(), Some("10.0.0.3"));
}

#[test]
fn nobody_else_sets_what_is_ours_and_what_is_the_users_is_kept() {
    let mut all = of_rank(&place(), &meeting(), &share(), &|_| true);
    all.push(record((4711, 9)));
    // Told by the command, for jobs that may be started again.
    all.push((env::RESTART.into(), "0".into()));
    let mut of_others = of_member(3, &meeting(), &share(), &|_| true);
    let cast = Cast { servers: 1, ..Cast::of_ranks(1) };
    of_others.extend(of_other(&cast, 1, &meeting(), &share(), &|_| true).into_iter().chain(returned(1)));
    of_others.retain(|(name, _)| get(&all, name).is_none());
    all.extend(of_others);
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len(), "every name once: {names:?}");
    let mut ours = OWN.to_vec();
    ours.push("CUDA_VISIBLE_DEVICES");
    ours.sort_unstable();
    assert_eq!(sorted, ours);
}

#[test]
fn one_host_without_shares_gets_no_more_than_its_place() {
    let all = of_rank(&place(), &meeting(), &Share::default(), &|_| false);
    for name in ["SIRTAKI_INTERFACE", "SIRTAKI_RECORD", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"]
    {
        assert_eq!(get(&all, name), None, "{name}");
    }
}

#[test]
fn secrets_and_places_stay_at_home_and_settings_travel() {
    for name in ["PATH", "PYTHONPATH", "LC_ALL", "NCCL_DEBUG", "SIRTAKI_ALGORITHM", "TORCH_LOGS", "HOROVOD_CYCLE_TIME"]
    {
        assert!(travels(name), "{name}");
    }
    for name in
        ["HOME", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "TORCHELASTIC_RUN_ID", "SIRTAKI_RUN_VIA", "SLURM_JOB_ID"]
    {
        assert!(!travels(name), "{name}");
    }
    assert!(OWN.iter().all(|name| !travels(name)));
}

#[test]
fn wishes_come_on_top_of_what_travels() {
    let own = || [("PATH", "/bin"), ("HOME", "/h"), ("LANG", "C")].map(|(n, v)| (n.into(), v.into())).into_iter();
    let wish = |name: &str, value: Option<&str>| Wish { name: name.into(), value: value.map(Into::into) };
    let wishes = [wish("HOME", None), wish("LANG", Some("de")), wish("NOT_THERE", None)];
    let shown = |inherits| {
        let all = of_host(own(), &wishes, inherits);
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(false), "PATH=/bin HOME=/h LANG=de");
    assert_eq!(shown(true), "HOME=/h LANG=de");
}

#[test]
fn servers_know_what_they_are_and_are_no_ranks() {
    let cast = Cast { servers: 2, coordinator: true, ..Cast::of_ranks(4) };
    let of = |process| of_other(&cast, process, &meeting(), &Share::default(), &|_| false);
    let value = |all: &[(String, String)], name: &str| {
        all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let server = of(5);
    let expected = [(env::ROLE, "server"), (env::SERVER, "1"), (env::SERVERS, "2"), (env::SIZE, "4"), (env::JOB, "j7")];
    for (name, expected) in expected {
        assert_eq!(value(&server, name).as_deref(), Some(expected), "{name}");
    }
    assert_eq!(value(&server, env::RANK), None);
    assert!(value(&server, env::STORE).is_some(), "it meets the others there");
    let coordinator = of(6);
    assert_eq!(value(&coordinator, env::ROLE).as_deref(), Some("coordinator"));
    assert_eq!(value(&coordinator, env::SERVER), None);
    assert_eq!(of_worker(&Cast::of_ranks(4)), [], "ranks alone need not know");
    assert_eq!(value(&of_worker(&cast), env::SERVERS).as_deref(), Some("2"));
    assert_eq!(returned(0), None);
}
