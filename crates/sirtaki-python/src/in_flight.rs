//! Requests that are not done, by name: a name in use is used again only when the request that has it is done.
//!
//! Ranks name requests by order where programs give no names, and there is no limit to how many such requests a program
//! may have in flight. Later ones wait here and not in the caller, which may have to act for the earlier ones to
//! finish.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sirtaki_engine::{Engine, Request, Tensor, Ticket};

/// The requests that are not done.
#[derive(Default)]
pub(crate) struct InFlight {
    last: Arc<Mutex<HashMap<String, Arc<Ticket>>>>,
}

impl InFlight {
    fn lock(last: &Mutex<HashMap<String, Arc<Ticket>>>) -> MutexGuard<'_, HashMap<String, Arc<Ticket>>> {
        last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands in requests under a name, after those that have it: a single one, or a group.
    pub(crate) fn submit(&self, engine: &Engine, name: &str, mut requests: Vec<(Request, Tensor)>) -> Arc<Ticket> {
        let mut last = Self::lock(&self.last);
        let alone = if requests.len() == 1 { requests.pop() } else { None };
        let ticket = match (last.get(name), alone) {
            (None, Some((request, tensor))) => engine.submit(request, tensor),
            (None, None) => engine.submit_group(name, requests),
            (Some(before), Some((request, tensor))) => engine.submit_after(before, request, tensor),
            (Some(before), None) => engine.submit_group_after(before, name, requests),
        };
        let ticket = Arc::new(ticket);
        last.insert(name.into(), ticket.clone());
        drop(last);
        self.forget(vec![name.to_owned()], &ticket);
        ticket
    }

    /// Hands in a request under each of these names; a name that is in use is the error.
    pub(crate) fn submit_each(
        &self,
        engine: &Engine,
        names: Vec<String>,
        requests: Vec<(Request, Tensor)>,
    ) -> Result<Arc<Ticket>, String> {
        let mut last = Self::lock(&self.last);
        if let Some(used) = names.iter().find(|name| last.get(*name).is_some_and(|ticket| !ticket.poll())) {
            return Err(used.clone());
        }
        let ticket = Arc::new(engine.submit_each(requests));
        names.iter().for_each(|name| drop(last.insert(name.clone(), ticket.clone())));
        drop(last);
        self.forget(names, &ticket);
        Ok(ticket)
    }

    /// Forgets these names once the ticket is done, except those that are in use again.
    fn forget(&self, names: Vec<String>, ticket: &Arc<Ticket>) {
        let (last, own) = (self.last.clone(), Arc::downgrade(ticket));
        ticket.when_done(move || {
            let mut last = Self::lock(&last);
            for name in names {
                if last.get(&name).is_some_and(|current| own.as_ptr() == Arc::as_ptr(current)) {
                    last.remove(&name);
                }
            }
        });
    }
}
