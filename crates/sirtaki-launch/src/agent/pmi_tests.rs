use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::mpsc::channel,
};

use sirtaki_comm::secure::Secret;

use super::*;

fn job(hosts: usize, host: usize, size: usize, store: SocketAddr, secret: &Secret) -> PmiJob {
    PmiJob { size, host, hosts, store, secret: secret.clone(), tls: false, patience: Duration::from_secs(60) }
}

fn alone(local: usize) -> Arc<Pmi> {
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    Pmi::new(job(1, 0, local, nowhere, &Secret::random().unwrap()), local, channel().0)
}

/// A rank's end of a conversation.
struct Rank {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Rank {
    fn of(pmi: &Arc<Pmi>) -> Self {
        let (theirs, variables) = pmi.serve(0).unwrap();
        let expected = [("PMI_FD", theirs.as_raw_fd() as usize), ("PMI_RANK", 0), ("PMI_SIZE", pmi.job.size)];
        assert_eq!(variables, expected.map(|(name, value)| (name.to_owned(), value.to_string())));
        let to = UnixStream::from(theirs);
        Self { from: BufReader::new(to.try_clone().unwrap()), to }
    }

    fn says(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    fn asks(&mut self, line: &str) -> String {
        self.says(line);
        self.hears()
    }
}

#[test]
fn a_rank_is_greeted_as_by_mpich_s_own_launcher() {
    let mut rank = Rank::of(&alone(3));
    let conversation = [
        ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        ("cmd=get_maxes", MAXES),
        ("cmd=get_appnum", "cmd=appnum appnum=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=sirtaki"),
        ("cmd=get_universe_size", "cmd=universe_size size=3"),
        ("cmd=get kvsname=sirtaki key=none", "cmd=get_result rc=-1 msg=not_found value=unknown"),
        ("cmd=put kvsname=sirtaki key=a value=b c=d", "cmd=put_result rc=0 msg=success"),
        ("cmd=get kvsname=sirtaki key=a", "cmd=get_result rc=0 msg=success value=b c=d"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ];
    for (asked, answer) in conversation {
        assert_eq!(rank.asks(asked), answer);
    }
}

#[test]
fn what_is_not_supported_is_refused_and_the_rest_still_works() {
    let mut rank = Rank::of(&alone(1));
    assert!(
        rank.asks("mcmd=spawn\nnprocs=1\nexecname=x\nendcmd").starts_with("cmd=spawn_result rc=-1 msg=not_supported")
    );
    assert!(rank.asks("cmd=publish_name service=a port=b").starts_with("cmd=publish_name_result rc=-1"));
    assert!(rank.asks("nonsense").contains("rc=-1"));
    assert_eq!(rank.asks("cmd=barrier_in"), "cmd=barrier_out rc=0");
}

#[test]
fn the_rank_that_aborts_is_reported() {
    let (aborts, told) = channel();
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let pmi = Pmi::new(job(1, 0, 1, nowhere, &Secret::random().unwrap()), 1, aborts);
    Rank::of(&pmi).says("cmd=abort exitcode=7");
    assert!(matches!(told.recv().unwrap(), Happening::Aborted(0, 7)));
}

#[test]
fn nobody_passes_a_barrier_before_all_of_the_host_have_come() {
    let pmi = alone(2);
    let (mut first, mut second) = (Rank::of(&pmi), Rank::of(&pmi));
    for round in 0..3 {
        first.says(&format!("cmd=put kvsname=sirtaki key=r{round} value={round}"));
        assert_eq!(first.hears(), "cmd=put_result rc=0 msg=success");
        first.says("cmd=barrier_in");
        assert_eq!(second.asks("cmd=barrier_in"), "cmd=barrier_out rc=0");
        assert_eq!(
            second.asks(&format!("cmd=get key=r{round}")),
            format!("cmd=get_result rc=0 msg=success value={round}")
        );
        assert_eq!(first.hears(), "cmd=barrier_out rc=0");
    }
}

#[test]
fn ranks_of_several_hosts_meet_in_the_store() {
    let secret = Secret::random().unwrap();
    let server = TcpStore::serve(Ipv4Addr::LOCALHOST.into(), &secret, false).unwrap();
    let hosts = [0, 1].map(|host| Pmi::new(job(2, host, 2, server.address(), &secret), 1, channel().0));
    let [mut here, mut there] = [0, 1].map(|host: usize| Rank::of(&hosts[host]));
    here.asks("cmd=put key=address value=here");
    here.says("cmd=barrier_in");
    there.asks("cmd=put key=other value=there");
    assert_eq!(there.asks("cmd=barrier_in"), "cmd=barrier_out rc=0");
    assert_eq!(there.asks("cmd=get key=address"), "cmd=get_result rc=0 msg=success value=here");
    assert_eq!(here.hears(), "cmd=barrier_out rc=0");
    assert_eq!(here.asks("cmd=get key=other"), "cmd=get_result rc=0 msg=success value=there");
    assert_eq!(here.asks("cmd=get key=nothing"), "cmd=get_result rc=-1 msg=not_found value=unknown");
}
