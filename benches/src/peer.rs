//! The measuring side: starts a library's processes, asks them, and ends them.

use std::{
    io,
    os::unix::net::UnixListener,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    net::sockopt::socket_peercred,
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

use crate::{
    command,
    protocol::{BenchError, Hello, Lines, Order, SOCKET, Times},
};

/// How long processes may take to end before they are killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// The processes of one library, connected and waiting.
#[derive(Debug)]
pub struct Peer {
    name: String,
    /// By rank.
    ranks: Vec<Lines>,
    /// The processes at the other ends.
    pids: Vec<Pid>,
    children: Vec<Child>,
    _folder: TempDir,
}

impl Peer {
    /// Starts `commands` (one per rank, or one launcher for all) and waits until `size` processes have connected.
    /// `patience` limits the start and every later answer.
    pub fn start(name: &str, commands: Vec<Command>, size: usize, patience: Duration) -> Result<Self, BenchError> {
        let folder = TempDir::new().map_err(BenchError::io("cannot make a folder for a socket"))?;
        let path = folder.path().join("peer");
        let listener = UnixListener::bind(&path).map_err(BenchError::io("cannot listen for peers"))?;
        listener.set_nonblocking(true).map_err(BenchError::io("cannot listen for peers"))?;
        let mut peer =
            Self { name: name.into(), ranks: Vec::new(), pids: Vec::new(), children: Vec::new(), _folder: folder };
        for mut command in commands {
            let action = format!("cannot start {name} ({})", command.get_program().display());
            peer.children.push(command.env(SOCKET, &path).spawn().map_err(BenchError::io(action))?);
        }
        peer.collect(&listener, size, patience)?;
        Ok(peer)
    }

    fn collect(&mut self, listener: &UnixListener, size: usize, patience: Duration) -> Result<(), BenchError> {
        let deadline = Instant::now() + patience;
        let mut found: Vec<(usize, Lines)> = Vec::new();
        while found.len() < size {
            match listener.accept() {
                Ok((stream, _)) => found.push(self.greet(Lines::new(stream), size, patience)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.check_alive()?;
                    if Instant::now() > deadline {
                        let (name, came) = (&self.name, found.len());
                        return Err(BenchError::Protocol(format!("{came} of {size} processes of {name} connected")));
                    }
                    sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(BenchError::io("cannot accept a peer")(error)),
            }
        }
        found.sort_by_key(|(rank, _)| *rank);
        self.ranks = found.into_iter().map(|(_, lines)| lines).collect();
        let other_end = |lines: &mut Lines| socket_peercred(lines.stream()).map(|other| other.pid);
        self.pids = self
            .ranks
            .iter_mut()
            .map(other_end)
            .collect::<Result<_, _>>()
            .map_err(|error| BenchError::io("cannot see who is at the other end of a socket")(error.into()))?;
        self.signal(Signal::STOP);
        Ok(())
    }

    /// Peers run in turn: some have threads that are never idle, which must not disturb the others.
    fn signal(&self, signal: Signal) {
        for pid in &self.pids {
            let _ = kill_process(*pid, signal);
        }
    }

    fn greet(&self, mut lines: Lines, size: usize, patience: Duration) -> Result<(usize, Lines), BenchError> {
        let stream = lines.stream();
        stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(patience)))
            .map_err(BenchError::io("cannot set up a socket"))?;
        match lines.read::<Hello>()? {
            Some(hello) if hello.size == size => Ok((hello.rank, lines)),
            other => Err(BenchError::Protocol(format!("{} with {size} processes said {other:?}", self.name))),
        }
    }

    fn check_alive(&mut self) -> Result<(), BenchError> {
        for child in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(BenchError::Protocol(format!("{} ended before it connected: {status}", self.name)));
            }
        }
        Ok(())
    }

    /// Lets the processes run although nothing is asked of them.
    pub fn wake(&self) {
        self.signal(Signal::CONT);
    }

    /// The library's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many processes it has.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Runs `iterations` all-reduces of `bytes` bytes; returns, for each of them, the microseconds of the slowest
    /// process.
    pub fn measure(&mut self, bytes: usize, iterations: usize) -> Result<Vec<f64>, BenchError> {
        self.ask(&Order { bytes, iterations, ..Order::default() }).map(|times| slowest(&times))
    }

    /// Has it do some work, `iterations` times; returns the microseconds of each time, by process.
    pub fn perform(&mut self, work: &str, iterations: usize) -> Result<Vec<Vec<f64>>, BenchError> {
        self.ask(&Order { work: Some(work.into()), iterations, ..Order::default() })
    }

    fn ask(&mut self, order: &Order) -> Result<Vec<Vec<f64>>, BenchError> {
        self.signal(Signal::CONT);
        self.ranks.iter_mut().try_for_each(|lines| lines.write(order))?;
        let mut times = Vec::with_capacity(self.ranks.len());
        for (rank, lines) in self.ranks.iter_mut().enumerate() {
            let micros = lines.read::<Times>()?.map(|times| times.micros).unwrap_or_default();
            if micros.len() != order.iterations {
                let (name, got) = (&self.name, micros.len());
                return Err(BenchError::Protocol(format!("rank {rank} of {name} measured {got} calls of {order:?}")));
            }
            times.push(micros);
        }
        self.signal(Signal::STOP);
        Ok(times)
    }
}

impl Peer {
    /// Processor time of the processes that were started, all their threads together, so far.
    pub fn processor_time(&self) -> Result<Duration, BenchError> {
        self.children.iter().map(|child| command::processor_time(child.id())).sum()
    }

    /// Processor time so far of the engine's threads that do not run collectives, in the process that has most of it.
    pub fn time_beside(&self) -> Result<Duration, BenchError> {
        let beside = |name: &str| name == "sirtaki-scribe" || name == "sirtaki-watch";
        let times = self.children.iter().map(|child| command::thread_time(child.id(), &beside));
        Ok(times.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        for lines in &mut self.ranks {
            let _ = lines.write(&Order { end: true, ..Order::default() });
        }
        self.ranks.clear();
        let deadline = Instant::now() + FAREWELL;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The microseconds of the slowest process in each call.
pub fn slowest(times: &[Vec<f64>]) -> Vec<f64> {
    let calls = times.first().map_or(0, Vec::len);
    (0..calls).map(|call| times.iter().map(|micros| micros[call]).fold(0.0, f64::max)).collect()
}

/// The median of some times; for an even number of them, the lower of the two in the middle.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::slowest;

    #[test]
    fn a_call_takes_as_long_as_its_slowest_process() {
        assert_eq!(slowest(&[vec![1.0, 5.0], vec![2.0, 4.0]]), [2.0, 5.0]);
        assert!(slowest(&[]).is_empty());
    }
}
