//! A worker: asks servers, and waits for their answers.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use sirtaki_comm::{STANDSTILL, Settings, secure::Access};

use super::{
    claim, enter,
    post::{Event, Post},
};
use crate::{
    ServerError,
    decide::{
        HEAD, Id,
        block::CHANGES,
        client::{Client, Outcome},
        clock::Delay,
        message::{Act, Kind, Leaves, Message, Piece, StepNumbers},
        table::{Rows, TableSpec},
    },
};

/// How often a server whose link was lost is called again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long such a call may take.
const CALL: Duration = Duration::from_secs(1);

/// Rows of a table, and gradients for them.
#[derive(Debug, Clone)]
pub struct Gradient<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The rows.
    pub rows: Rows,
    /// The leaves of the tree that these are sums over; of no meaning without a tree.
    pub leaves: (u32, u32),
    /// A number for each element of these rows.
    pub values: &'a [f32],
}

/// What it took so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Time spent waiting for servers.
    pub waited: Duration,
    /// Bytes that came and went.
    pub received: u64,
    /// Bytes that went.
    pub sent: u64,
    /// How often the slowest worker was so many clocks behind when this one read.
    pub behind: BTreeMap<u64, u64>,
    /// How often servers changed.
    pub views: u64,
}

/// A worker that takes part in a service. Dropping it without [`Worker::leave`] is a death.
pub struct Worker {
    settings: Settings,
    access: Access,
    post: Post,
    client: Client,
    tables: BTreeMap<String, TableSpec>,
    clock: u64,
    report: WorkerReport,
    /// How far the slowest worker was behind when this one last read.
    behind: u64,
    /// Servers whose link was lost, and when to call them again.
    lost: BTreeMap<Id, Instant>,
}

impl Worker {
    /// Enters the service of this head. Returns when it has begun; at any later time that is soon.
    pub fn join(head: SocketAddr, settings: &Settings) -> Result<Self, ServerError> {
        let mut post = Post::new(settings)?;
        let access = Access::from_settings(settings)?;
        let (id, terms) = enter(&mut post, &access, head, None, settings)?;
        let (tables, report, lost) = (BTreeMap::new(), WorkerReport::default(), BTreeMap::new());
        let client = Client::new(id, terms);
        let mut worker =
            Self { settings: settings.clone(), access, post, client, tables, clock: 0, report, behind: 0, lost };
        let begun = Instant::now();
        loop {
            if let (Some(start), true) = (worker.client.start(), worker.lost.is_empty()) {
                worker.clock = start;
                return Ok(worker);
            }
            worker.turn("joining", begun, settings.start_timeout)?;
        }
    }

    /// Its number in the service.
    pub fn id(&self) -> Id {
        self.client.id()
    }

    /// Its clock: the number of its pushes, and those that others had made when it came.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// How many clocks the slowest worker was behind when this one last read.
    pub fn behind(&self) -> u64 {
        self.behind
    }

    /// How far workers may be apart.
    pub fn delay(&self) -> Delay {
        self.client.terms().delay
    }

    /// What it took so far.
    pub fn report(&self) -> WorkerReport {
        let (received, sent) = self.post.moved;
        WorkerReport { received, sent, views: self.client.view().number, ..self.report.clone() }
    }

    /// Makes a table, with these weights or with zeros, unless it is there; every worker does before it uses it.
    pub fn create(&mut self, table: TableSpec, weights: &[f32]) -> Result<(), ServerError> {
        let elements = table.rows.saturating_mul(u64::from(table.width));
        let problem = table.problem().or_else(|| {
            let fits = weights.is_empty() || weights.len() as u64 == elements;
            (!fits).then(|| format!("table `{}` has {elements} elements, not {}", table.name, weights.len()))
        });
        if let Some(problem) = problem {
            return Err(ServerError::Invalid { problem });
        }
        let piece = |number| {
            let rows = table.block_rows(number);
            Piece { block: table.block(number), rows: Rows::Range(0..rows.end - rows.start), leaves: (0, 0) }
        };
        let pieces = (0..table.blocks()).map(piece).collect();
        let operation = format!("table `{}`", table.name);
        self.tables.insert(table.name.clone(), table.clone());
        self.ask(&operation, Act::Create { table, pieces }, weights.to_vec()).map(drop)
    }

    /// Tables that another worker has made are used under this shape and rule.
    pub fn table(&self, name: &str) -> Option<&TableSpec> {
        self.tables.get(name)
    }

    /// The weights of these rows, once the slowest worker is near enough.
    pub fn pull(&mut self, rows: &[(&str, Rows)]) -> Result<Vec<Vec<f32>>, ServerError> {
        let pieces = self.pieces(rows)?;
        let (values, behind) = self.ask("a pull", Act::Pull { pieces }, Vec::new())?;
        self.note(behind);
        self.cut(rows, values)
    }

    fn note(&mut self, behind: u64) {
        self.behind = behind;
        *self.report.behind.entry(behind).or_default() += 1;
    }

    /// Changes weights by gradients with this learning rate. The clock goes on by one. With a tree, gradients are sums
    /// over its leaves; without one, those of workers in step are averaged.
    pub fn push(&mut self, rate: f64, gradients: &[Gradient<'_>], tree: Option<Leaves>) -> Result<(), ServerError> {
        self.push_pull(rate, gradients, tree, &[]).map(drop)
    }

    /// The same, and the weights of these rows after it, in one message to each server and back.
    pub fn push_pull(
        &mut self,
        rate: f64,
        gradients: &[Gradient<'_>],
        tree: Option<Leaves>,
        rows: &[(&str, Rows)],
    ) -> Result<Vec<Vec<f32>>, ServerError> {
        let numbers = gradients.iter().map(|gradient| gradient.values.len()).sum();
        let (mut pieces, mut data) = (Vec::new(), Vec::with_capacity(numbers));
        for gradient in gradients {
            let (table, width) = self.known(gradient.table)?;
            if !gradient.rows.fit(table.rows) || gradient.values.len() != gradient.rows.len() * width {
                let problem = format!(
                    "table `{}`: {} numbers for {} of {} rows of {width}",
                    gradient.table,
                    gradient.values.len(),
                    gradient.rows.len(),
                    table.rows
                );
                return Err(ServerError::Invalid { problem });
            }
            for (number, rows) in gradient.rows.by_block(table) {
                pieces.push(Piece { block: table.block(number), rows, leaves: gradient.leaves });
            }
            data.extend_from_slice(gradient.values);
        }
        let pulls = self.pieces(rows)?;
        let pulled = !pulls.is_empty();
        let step = StepNumbers { rate, leaves: tree };
        let (values, behind) = self.ask("a push", Act::Push { step, pieces, pulls }, data)?;
        self.clock += 1;
        if pulled {
            self.note(behind);
        }
        self.cut(rows, values)
    }

    /// A table as it is: slot 0 has the weights, others what their rule keeps. Waits for nobody, so workers that want
    /// the same have to agree that nobody pushes.
    pub fn get(&mut self, table: &str, slot: u32) -> Result<Vec<f32>, ServerError> {
        let pieces = self.pieces(&[(table, Rows::Range(0..self.known(table)?.0.rows))])?;
        Ok(self.ask(&format!("slot {slot} of `{table}`"), Act::Get { slot, pieces }, Vec::new())?.0)
    }

    /// How often the weights at the beginning of a table were changed. Waits for nobody.
    pub fn changes(&mut self, table: &str) -> Result<u64, ServerError> {
        let pieces = self.pieces(&[(table, Rows::Range(0..1))])?;
        let (values, _) = self.ask(&format!("changes of `{table}`"), Act::Get { slot: CHANGES, pieces }, Vec::new())?;
        Ok(values.first().map_or(0, |&changes| changes as u64))
    }

    /// Overwrites a slot of a table, and how often its weights were changed. What `get` gave, however many servers there
    /// were, is right for any number of them.
    pub fn put(&mut self, table: &str, slot: u32, changes: u64, values: &[f32]) -> Result<(), ServerError> {
        let (spec, width) = self.known(table)?;
        if values.len() as u64 != spec.rows * width as u64 {
            let problem = format!("table `{table}` has {} elements, not {}", spec.rows * width as u64, values.len());
            return Err(ServerError::Invalid { problem });
        }
        let pieces = self.pieces(&[(table, Rows::Range(0..spec.rows))])?;
        self.ask(&format!("slot {slot} of `{table}`"), Act::Put { slot, changes, pieces }, values.to_vec()).map(drop)
    }

    /// Leaves in good order. When the last worker does, the service ends.
    pub fn leave(mut self) {
        self.post.send(HEAD, Kind::Leave.into());
        let end = Instant::now() + CALL;
        while !self.post.is_flushed() && Instant::now() < end {
            self.post.next(end);
        }
    }

    fn known(&self, name: &str) -> Result<(&TableSpec, usize), ServerError> {
        let problem = || format!("there is no table `{name}`; hint: call `create` on every worker first");
        let table = self.tables.get(name).ok_or_else(|| ServerError::Invalid { problem: problem() })?;
        Ok((table, table.width as usize))
    }

    fn pieces(&self, rows: &[(&str, Rows)]) -> Result<Vec<Piece>, ServerError> {
        let mut pieces = Vec::new();
        for (name, rows) in rows {
            let (table, _) = self.known(name)?;
            if !rows.fit(table.rows) {
                let problem = format!("table `{name}` has {} rows; not all of these are among them", table.rows);
                return Err(ServerError::Invalid { problem });
            }
            let piece = |(number, rows)| Piece { block: table.block(number), rows, leaves: (0, 0) };
            pieces.extend(rows.by_block(table).into_iter().map(piece));
        }
        Ok(pieces)
    }

    /// What came, table by table.
    fn cut(&self, rows: &[(&str, Rows)], values: Vec<f32>) -> Result<Vec<Vec<f32>>, ServerError> {
        if rows.len() == 1 {
            return Ok(vec![values]);
        }
        let mut rest = values.as_slice();
        let mut all = Vec::new();
        for (name, rows) in rows {
            let (these, after) = rest.split_at((rows.len() * self.known(name)?.1).min(rest.len()));
            all.push(these.to_vec());
            rest = after;
        }
        Ok(all)
    }

    /// One request, from beginning to end.
    fn ask(&mut self, operation: &str, act: Act, data: Vec<f32>) -> Result<(Vec<f32>, u64), ServerError> {
        let begun = Instant::now();
        let mut out = Vec::new();
        let widths: BTreeMap<u64, usize> =
            self.tables.values().map(|table| (table.id(), table.width as usize)).collect();
        let width = |piece: &Piece| widths.get(&piece.block.table).copied().unwrap_or(0);
        self.client.begin(self.clock, act, data, width, &mut out);
        self.send(out);
        let mut moved = begun;
        let outcome = loop {
            let before = Instant::now();
            let (outcome, is_news) = self.turn(operation, moved, self.settings.timeout)?;
            if is_news || before.elapsed() > STANDSTILL {
                moved = Instant::now();
            }
            if let Some(outcome) = outcome {
                break outcome;
            }
        };
        self.report.waited += begun.elapsed();
        match outcome {
            Outcome::Done(values, behind) => Ok((values, behind)),
            Outcome::Refused(problem) => Err(ServerError::Refused { operation: operation.to_owned(), problem }),
            Outcome::Ended(reason) => Err(ended(reason)),
        }
    }

    /// Deals with the next event; nothing may have moved since `moved` for longer than the limit.
    fn turn(
        &mut self,
        operation: &str,
        moved: Instant,
        limit: Duration,
    ) -> Result<(Option<Outcome>, bool), ServerError> {
        let mut out = Vec::new();
        self.call_again(&mut out);
        let deadline = if self.lost.is_empty() { moved + limit } else { Instant::now() + AGAIN };
        let (mut outcome, mut is_news) = (None, false);
        match self.post.next(deadline) {
            Event::Message(from, message) => {
                let ends = matches!((&message.kind, from), (Kind::End(_), HEAD));
                let number = self.client.view().number;
                outcome = self.client.handle(from, message, &mut out);
                if self.client.view().number != number {
                    self.meet();
                }
                if let (true, None) = (ends, &outcome) {
                    return Err(ended(None));
                }
                is_news = true;
            }
            Event::Gone(HEAD, how) => return Err(ended(Some(format!("the head is gone: {how}")))),
            Event::Gone(id, _) => drop(self.lost.insert(id, Instant::now())),
            Event::Nothing if moved.elapsed() > limit => {
                let servers: Vec<String> = self.client.waits_for().iter().map(Id::to_string).collect();
                let who = match servers.is_empty() {
                    true => "the head, which waits for servers and workers".into(),
                    false => format!("server {}, or the slowest worker", servers.join(", ")),
                };
                return Err(ServerError::Timeout { who, operation: operation.to_owned(), waited: limit });
            }
            Event::Nothing => {}
        }
        self.send(out);
        Ok((outcome, is_news))
    }

    fn send(&mut self, out: Vec<(Id, Message)>) {
        out.into_iter().for_each(|(to, message)| self.post.send(to, message));
    }

    /// Links to the servers of a new view.
    fn meet(&mut self) {
        let servers = self.client.view().servers.clone();
        self.post.keep(|id| id == HEAD || servers.contains_key(&id));
        self.lost.retain(|id, _| servers.contains_key(id));
        for &id in servers.keys() {
            if !self.post.has(id) {
                self.lost.insert(id, Instant::now());
            }
        }
    }

    /// Calls servers to which there is no link. One that is gone is in no view for long.
    fn call_again(&mut self, out: &mut Vec<(Id, Message)>) {
        let now = Instant::now();
        let due: Vec<Id> = self.lost.iter().filter(|&(_, &at)| at <= now).map(|(&id, _)| id).collect();
        for id in due {
            let Some(&address) = self.client.view().servers.get(&id) else { continue };
            match self.access.call(address, &claim(self.client.id(), id), now + CALL) {
                Ok(stream) => {
                    self.post.forget(id);
                    if self.post.add(id, stream).is_ok() {
                        self.lost.remove(&id);
                        self.client.repeat(id, out);
                    }
                }
                Err(_) => drop(self.lost.insert(id, Instant::now() + AGAIN)),
            }
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("id", &self.id()).field("clock", &self.clock).finish_non_exhaustive()
    }
}

fn ended(reason: Option<String>) -> ServerError {
    ServerError::Ended { reason: reason.unwrap_or_else(|| "all workers have left".into()) }
}
