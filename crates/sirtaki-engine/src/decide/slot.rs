//! What the table knows about one name: which ranks want what, and since when.

use std::{sync::Arc, time::Duration};

use sirtaki_comm::Rank;

use crate::decide::request::Request;

/// Everything known about one name.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    /// What each rank wants now.
    pub(crate) wants: Vec<Option<Arc<Request>>>,
    /// When each rank asked for it.
    pub(crate) since: Vec<Duration>,
    pub(crate) count: usize,
    pub(crate) twice: Vec<Rank>,
    /// What each rank wanted last time.
    pub(crate) agreed: Vec<Option<Arc<Request>>>,
    /// Some rank wants something other than last time, or not all of them have been compared.
    pub(crate) fresh: bool,
    /// All have asked and it is waiting to be put into a batch.
    pub(crate) ready: bool,
}

impl Slot {
    pub(crate) fn new(name: String, size: usize) -> Self {
        let (wants, since, agreed) = (vec![None; size], vec![Duration::ZERO; size], vec![None; size]);
        Slot { name, wants, since, count: 0, twice: Vec::new(), agreed, fresh: true, ready: false }
    }

    pub(crate) fn first(&self) -> Option<&Arc<Request>> {
        self.wants.iter().flatten().next()
    }

    pub(crate) fn clear(&mut self) {
        self.wants.fill(None);
        self.twice.clear();
        (self.count, self.ready) = (0, false);
    }
}
