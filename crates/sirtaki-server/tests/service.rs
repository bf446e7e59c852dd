//! Head, servers and workers over real links: as threads, and as processes that are killed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use sirtaki_comm::{Settings, secure::Secret};
use sirtaki_server::{
    Change, Delay, Gradient, Head, HeadOptions, Leaves, Rows, Rule, RuleSpec, Rules, Server, ServerError, TableSpec,
    Worker,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// What makes the test below a server or worker of another test.
const ROLE: &str = "SIRTAKI_TEST_ROLE";
const ELEMENTS: u64 = 300_000;

/// A rule of a user's that fails.
struct Broken;

impl Rule for Broken {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _: Change, _: &mut [f32], _: &mut [&mut [f32]], _: &[f32]) {
        panic!("there is no such gradient");
    }
}

/// Adds gradients up, so that what became of each push can be read off.
struct Count;

impl Rule for Count {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _: Change, weights: &mut [f32], _: &mut [&mut [f32]], gradient: &[f32]) {
        weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight += gradient);
    }
}

fn rules() -> Rules {
    Rules::default().with("count", Count).with("broken", Broken)
}

fn counted() -> TableSpec {
    TableSpec { name: "counts".into(), rows: ELEMENTS, width: 1, rule: RuleSpec::Named("count".into()) }
}

fn settings() -> Settings {
    Settings { timeout: Duration::from_secs(100), ..Settings::new(Secret::random().unwrap()) }
}

fn open(settings: &Settings, delay: Delay, servers: usize, workers: usize, copies: usize) -> Head {
    Head::open(HERE, settings, HeadOptions { delay, copies, servers, workers }).unwrap()
}

fn serve(head: &Head, settings: &Settings) -> Server {
    Server::start(head.address(), HERE, settings, rules()).unwrap()
}

fn everything(table: &str) -> [(&str, Rows); 1] {
    [(table, Rows::Range(0..ELEMENTS))]
}

/// Adds `amount` to all elements.
fn count(worker: &mut Worker, amount: f32) -> Result<(), ServerError> {
    let values = vec![amount; ELEMENTS as usize];
    // A tree without a scale: counts are not averaged.
    let id = worker.id();
    let tree = Some(Leaves { total: 1 << 20, scale: 1.0 });
    let gradient = Gradient { table: "counts", rows: Rows::Range(0..ELEMENTS), leaves: (id, id + 1), values: &values };
    worker.push(1.0, &[gradient], tree)
}

/// A server or worker in a process of its own.
fn start(role: &str, head: SocketAddr, settings: &Settings) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["in_another_process", "--exact", "--nocapture"])
        .env(ROLE, format!("{role} {head} {}", *settings.secret.to_hex()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn in_another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let settings = Settings { secret: Secret::from_hex(words[2]).unwrap(), ..settings() };
    let head = words[1].parse().unwrap();
    match words[0] {
        "server" => Server::run(head, HERE, &settings, rules()).unwrap(),
        _ => {
            let mut worker = Worker::join(head, &settings).unwrap();
            worker.create(counted(), &[]).unwrap();
            loop {
                worker.pull(&everything("counts")).unwrap();
                count(&mut worker, 1024.0).unwrap();
            }
        }
    }
}

#[test]
fn workers_in_step_read_the_sums_of_all() {
    let settings = settings();
    let head = open(&settings, Delay::Bounded(0), 2, 3, 1);
    let servers = [serve(&head, &settings), serve(&head, &settings)];
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                let mut worker = Worker::join(head.address(), &settings).unwrap();
                worker.create(counted(), &[]).unwrap();
                for step in 0..6_u64 {
                    assert_eq!(worker.clock(), step);
                    let values = worker.pull(&everything("counts")).unwrap().remove(0);
                    assert!(values.iter().all(|&value| value == 3.0 * step as f32), "step {step}");
                    count(&mut worker, 1.0).unwrap();
                }
                assert_eq!(worker.report().behind.keys().copied().collect::<Vec<_>>(), [0]);
                worker.leave();
            });
        }
    });
    servers.into_iter().for_each(|server| server.join().unwrap());
    head.join().unwrap();
}

#[test]
fn only_touched_rows_travel() {
    let settings = settings();
    let head = open(&settings, Delay::Unbounded, 1, 1, 1);
    let _server = serve(&head, &settings);
    let mut worker = Worker::join(head.address(), &settings).unwrap();
    let (rows, width) = (200_000_u64, 16_u32);
    let words = TableSpec { name: "words".into(), rows, width, rule: RuleSpec::sgd() };
    worker.create(words, &[]).unwrap();
    let before = worker.report();
    let touched: Vec<u64> = (0..rows).step_by(100).collect();
    let values = vec![1.0; touched.len() * width as usize];
    let some = Rows::some(&touched).unwrap();
    let gradient = Gradient { table: "words", rows: some.clone(), leaves: (0, 0), values: &values };
    let pulled = worker.push_pull(0.5, &[gradient], None, &[("words", some)]).unwrap().remove(0);
    assert!(pulled.iter().all(|&value| value == -0.5) && pulled.len() == values.len());
    let after = worker.report();
    let moved = after.sent + after.received - before.sent - before.received;
    let needed = 2 * 4 * values.len() as u64;
    assert!(moved as f64 <= 1.1 * needed as f64, "{moved} bytes for {needed}");
    let neighbours = worker.pull(&[("words", Rows::Range(99..102))]).unwrap().remove(0);
    assert_eq!(neighbours, [vec![0.0; 16], vec![-0.5; 16], vec![0.0; 16]].concat());
    // A push to rows that do not exist is refused here, and one of a table that nobody made.
    let outside = worker.pull(&[("words", Rows::Range(rows..rows + 1))]).unwrap_err();
    assert_eq!(outside.to_string(), "table `words` has 200000 rows; not all of these are among them");
    let unknown = worker.pull(&[("word", Rows::Range(0..1))]).unwrap_err();
    assert!(unknown.to_string().contains("no table `word`"));
    worker.leave();
}

#[test]
fn killed_servers_lose_nothing() {
    let settings = settings();
    let head = open(&settings, Delay::Bounded(2), 3, 2, 2);
    let mut servers: Vec<Child> = (0..3).map(|_| start("server", head.address(), &settings)).collect();
    let (address, settings) = (head.address(), &settings);
    let (sender, pushed) = std::sync::mpsc::channel();
    const PUSHES: u64 = 40;
    thread::scope(|threads| {
        for _ in 0..2 {
            let sender = sender.clone();
            threads.spawn(move || {
                let mut worker = Worker::join(address, settings).unwrap();
                worker.create(counted(), &[]).unwrap();
                for step in 0..PUSHES {
                    let values = worker.pull(&everything("counts")).unwrap().remove(0);
                    // The other one has pushed at least two times less, and goes on during the pull until it is three ahead.
                    let bounds = (2 * step).saturating_sub(2) as f32..=(2 * step + 3) as f32;
                    assert!(values.iter().all(|value| bounds.contains(value)), "step {step}: {values:?}");
                    count(&mut worker, 1.0).unwrap();
                    sender.send(step).unwrap();
                }
                assert!(worker.report().behind.keys().all(|&behind| behind <= 2));
                // In step with the other one at the end: everything of both is there.
                while worker.pull(&everything("counts")).unwrap()[0].iter().any(|&value| value < 2.0 * PUSHES as f32) {
                    thread::yield_now();
                }
                let end = worker.pull(&everything("counts")).unwrap().remove(0);
                assert!(end.iter().all(|&value| value == 2.0 * PUSHES as f32), "sums are exact");
                worker.leave();
            });
        }
        drop(sender);
        // A server dies after every ten pushes, and another one comes.
        for (number, _) in pushed.iter().enumerate() {
            if number % 10 == 9 && number < 60 {
                let mut victim = servers.remove(0);
                victim.kill().unwrap();
                victim.wait().unwrap();
                servers.push(start("server", address, settings));
            }
        }
    });
    head.join().unwrap();
    for mut server in servers {
        server.wait().unwrap();
    }
}

#[test]
fn a_killed_worker_holds_up_nobody() {
    let settings = settings();
    let head = open(&settings, Delay::Bounded(0), 1, 2, 1);
    let _server = serve(&head, &settings);
    let mut other = start("worker", head.address(), &settings);
    let mut worker = Worker::join(head.address(), &settings).unwrap();
    worker.create(counted(), &[]).unwrap();
    let mut six_steps = || {
        for _ in 0..6 {
            worker.pull(&everything("counts")).unwrap();
            count(&mut worker, 1.0).unwrap();
        }
    };
    six_steps();
    other.kill().unwrap();
    other.wait().unwrap();
    six_steps();
    let values = worker.pull(&everything("counts")).unwrap().remove(0);
    let (mine, its) = (values[0] % 1024.0, (values[0] / 1024.0).floor());
    // My sixth pull saw five of its pushes, and it could go on to a seventh.
    assert!(mine == 12.0 && (5.0..=7.0).contains(&its), "{mine} of mine, {its} of the other's");
    assert!(values.iter().all(|&value| value == values[0]), "a push counts in whole or not at all");
    // One that comes later begins where this one is.
    let mut late = start("worker", head.address(), &settings);
    let views = worker.report().views;
    while worker.report().views == views {
        worker.pull(&everything("counts")).unwrap();
        count(&mut worker, 1.0).unwrap();
    }
    for _ in 0..3 {
        worker.pull(&everything("counts")).unwrap();
        count(&mut worker, 1.0).unwrap();
    }
    late.kill().unwrap();
    late.wait().unwrap();
    worker.leave();
}

#[test]
fn state_goes_to_another_number_of_servers() {
    let adam = TableSpec { name: "weights".into(), rows: 100_000, width: 1, rule: RuleSpec::adam() };
    let begin: Vec<f32> = (0..100_000).map(|at| at as f32 / 7.0).collect();
    let step = |worker: &mut Worker, number: u32| {
        let values: Vec<f32> = begin.iter().map(|value| (value * number as f32).sin()).collect();
        let gradient = Gradient { table: "weights", rows: Rows::Range(0..100_000), leaves: (0, 0), values: &values };
        worker.push(0.01, &[gradient], None).unwrap();
    };
    let with_servers = |count: usize, work: &mut dyn FnMut(&mut Worker)| {
        let settings = settings();
        let head = open(&settings, Delay::Bounded(0), count, 1, 1);
        let _servers: Vec<Server> = (0..count).map(|_| serve(&head, &settings)).collect();
        let mut worker = Worker::join(head.address(), &settings).unwrap();
        worker.create(adam.clone(), &begin).unwrap();
        work(&mut worker);
        worker.leave();
    };
    let mut expected = Vec::new();
    with_servers(1, &mut |worker| {
        (1..7).for_each(|number| step(worker, number));
        expected = worker.get("weights", 0).unwrap();
    });
    let (mut slots, mut changes) = (Vec::new(), 0);
    with_servers(3, &mut |worker| {
        (1..4).for_each(|number| step(worker, number));
        slots = (0..3).map(|slot| worker.get("weights", slot).unwrap()).collect();
        changes = worker.changes("weights").unwrap();
    });
    assert_eq!(changes, 3);
    with_servers(2, &mut |worker| {
        for (slot, values) in slots.iter().enumerate() {
            worker.put("weights", slot as u32, changes, values).unwrap();
        }
        (4..7).for_each(|number| step(worker, number));
        assert!(worker.get("weights", 0).unwrap() == expected, "other bits than without a break");
    });
}

#[test]
fn strangers_and_nonsense_end_nothing() {
    use std::io::Write;
    let settings = settings();
    let head = open(&settings, Delay::Bounded(0), 1, 1, 1);
    let _server = serve(&head, &settings);
    let stranger = Settings { start_timeout: Duration::from_secs(20), ..self::settings() };
    let refused = Worker::join(head.address(), &stranger).unwrap_err();
    assert!(refused.to_string().contains("wrong secret"), "{refused}");
    TcpStream::connect(head.address()).unwrap().write_all(&[0xff; 4096]).unwrap();
    let mut worker = Worker::join(head.address(), &settings).unwrap();
    worker.create(counted(), &[]).unwrap();
    let twice = TableSpec { width: 2, ..counted() };
    let refused = worker.create(twice, &[]).unwrap_err();
    assert!(refused.to_string().contains("another shape"), "{refused}");
    let unknown = TableSpec { name: "other".into(), rule: RuleSpec::Named("unheard of".into()), ..counted() };
    let refused = worker.create(unknown, &[]).unwrap_err();
    assert!(refused.to_string().contains("no rule `unheard of`"), "{refused}");
    worker.leave();
    let none = Head::open(HERE, &settings, HeadOptions { delay: Delay::Unbounded, copies: 2, servers: 1, workers: 1 });
    assert!(none.unwrap_err().to_string().contains("1 servers, 1 workers and 2 copies"));
}

#[test]
fn the_last_copy_is_missed() {
    let settings = settings();
    let head = open(&settings, Delay::Bounded(0), 2, 1, 1);
    let _server = serve(&head, &settings);
    let mut doomed = start("server", head.address(), &settings);
    let mut worker = Worker::join(head.address(), &settings).unwrap();
    worker.create(counted(), &[]).unwrap();
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let error = (0..1_000_000).find_map(|_| count(&mut worker, 1.0).err()).unwrap();
    assert!(error.to_string().contains("1 servers are gone"), "{error}");
}

#[test]
fn a_server_that_panics_says_so() {
    let settings = Settings { timeout: Duration::from_secs(1), ..settings() };
    let head = open(&settings, Delay::Unbounded, 1, 1, 1);
    let server = serve(&head, &settings);
    let mut worker = Worker::join(head.address(), &settings).unwrap();
    let rule = RuleSpec::Named("broken".into());
    worker.create(TableSpec { name: "weights".into(), rows: 1, width: 1, rule }, &[]).unwrap();
    let gradient = Gradient { table: "weights", rows: Rows::Range(0..1), leaves: (0, 0), values: &[1.0] };
    let error = worker.push(0.1, &[gradient], None).unwrap_err();
    assert!(matches!(error, ServerError::Ended { .. }), "{error}");
    let error = server.join().unwrap_err();
    assert_eq!(error.to_string(), "the thread sirtaki-server panicked: there is no such gradient");
    assert!(error.hint().is_some_and(|hint| hint.contains("rule")));
}
