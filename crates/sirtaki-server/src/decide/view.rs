//! Who takes part, in numbered views, and the head that numbers them.
//!
//! A view begins with a pause: servers exchange what is still on its way, hand over blocks, and tell the head, which
//! then lets everybody go on. So a block never has two servers that answer for it, and a view that ends before it has
//! begun leaves nothing behind: blocks are where they were in the *base*, the last view that did begin.
//!
//! The head is one process and the single point of failure: without it the others go on until the next change, and end
//! then.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use serde::{Deserialize, Serialize};

use super::{
    HEAD, Id,
    message::{Kind, Message, Terms},
};

/// Who takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number, from one on.
    pub number: u64,
    /// The servers and where they listen.
    pub servers: BTreeMap<Id, SocketAddr>,
    /// The workers.
    pub workers: Vec<Id>,
    /// The servers of the last view that began.
    pub base: Vec<Id>,
}

impl View {
    /// The servers' numbers.
    pub fn server_ids(&self) -> Vec<Id> {
        self.servers.keys().copied().collect()
    }
}

/// The head: it admits members, notices who is gone, and numbers views.
#[derive(Debug)]
pub struct Membership {
    terms: Terms,
    /// Servers and workers without whom it does not begin.
    expected: (usize, usize),
    next: Id,
    view: View,
    /// What servers have said of the present view.
    settled: BTreeMap<Id, u64>,
    starts: BTreeMap<Id, u64>,
    begun: bool,
    /// Workers that have taken part.
    came: BTreeSet<Id>,
    ended: bool,
}

impl Membership {
    /// Nobody yet. It begins when so many servers and workers are there.
    pub fn new(terms: Terms, servers: usize, workers: usize) -> Self {
        Self {
            terms,
            expected: (servers, workers),
            next: HEAD + 1,
            view: View::default(),
            settled: BTreeMap::new(),
            starts: BTreeMap::new(),
            begun: false,
            came: BTreeSet::new(),
            ended: false,
        }
    }

    /// Admits a server that listens at this address, or a worker.
    pub fn enter(&mut self, listens: Option<SocketAddr>, out: &mut Vec<(Id, Message)>) -> Id {
        let id = self.next;
        self.next += 1;
        match listens {
            Some(address) => drop(self.view.servers.insert(id, address)),
            None => self.view.workers.push(id),
        }
        self.came.extend(listens.is_none().then_some(id));
        out.push((id, Kind::Entered(id, self.terms).into()));
        self.change(out);
        id
    }

    /// A member is gone, or has left.
    pub fn leave(&mut self, id: Id, out: &mut Vec<(Id, Message)>) {
        let was_server = self.view.servers.remove(&id).is_some();
        let before = self.view.workers.len();
        self.view.workers.retain(|&worker| worker != id);
        self.starts.remove(&id);
        if was_server || self.view.workers.len() < before {
            self.change(out);
        }
    }

    /// A server has all its blocks of a view.
    pub fn settled(&mut self, server: Id, view: u64, largest: u64, out: &mut Vec<(Id, Message)>) {
        if view != self.view.number || !self.view.servers.contains_key(&server) {
            return;
        }
        self.settled.insert(server, largest);
        if self.settled.len() < self.view.servers.len() {
            return;
        }
        let largest = self.settled.values().copied().max().unwrap_or(0);
        for &worker in &self.view.workers {
            self.starts.entry(worker).or_insert(largest);
        }
        self.view.base = self.view.server_ids();
        let serve = Kind::Serve { view, starts: self.starts.clone() };
        self.tell_all(&serve, out);
    }

    /// Whether all is over.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    /// Who takes part now.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn change(&mut self, out: &mut Vec<(Id, Message)>) {
        let (servers, workers) = (self.view.servers.len(), self.view.workers.len());
        self.begun |= servers >= self.expected.0 && workers >= self.expected.1;
        if !self.begun || self.ended {
            return;
        }
        if workers == 0 {
            return self.end(None, out);
        }
        let copies = (self.terms.copies as usize).min(self.view.base.len());
        let lost = self.view.base.iter().filter(|server| !self.view.servers.contains_key(server)).count();
        if servers == 0 || lost > 0 && lost >= copies {
            let problem = format!(
                "{lost} servers are gone at once, and some blocks were on {copies} only; hint: use more copies, and go on \
                 from a checkpoint"
            );
            return self.end(Some(problem), out);
        }
        self.view.number += 1;
        self.settled.clear();
        let view = Kind::View(self.view.clone());
        self.tell_all(&view, out);
    }

    fn end(&mut self, problem: Option<String>, out: &mut Vec<(Id, Message)>) {
        self.ended = true;
        self.tell_all(&Kind::End(problem), out);
    }

    fn tell_all(&self, kind: &Kind, out: &mut Vec<(Id, Message)>) {
        let everybody = self.view.servers.keys().chain(&self.view.workers);
        out.extend(everybody.map(|&id| (id, kind.clone().into())));
    }
}
