//! A server of blocks: a process of its own, or a thread of a worker's.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sirtaki_comm::{
    Settings,
    secure::{Access, Gate},
};

use super::{
    PATIENCE, claim, enter,
    member_thread::MemberThread,
    post::{Event, Post},
};
use crate::{
    ServerError,
    decide::{HEAD, Id, core::Core, message::Message},
    rule::Rules,
};

/// A server in a thread of this process. Dropping it ends it like a death.
#[derive(Debug)]
pub struct Server(MemberThread);

impl Server {
    /// A server that takes part in the service of this head until that ends, and listens on this address.
    pub fn start(head: SocketAddr, bind: IpAddr, settings: &Settings, rules: Rules) -> Result<Self, ServerError> {
        let mut server = ServerLoop::open(head, bind, settings, rules)?;
        let ringer = server.post.ringer();
        MemberThread::start("sirtaki-server", ringer, move |stop| server.run(stop)).map(Self)
    }

    /// The same in this thread, until the service ends.
    pub fn run(head: SocketAddr, bind: IpAddr, settings: &Settings, rules: Rules) -> Result<(), ServerError> {
        ServerLoop::open(head, bind, settings, rules)?.run(&AtomicBool::new(false))
    }

    /// Waits until the service has ended.
    pub fn join(self) -> Result<(), ServerError> {
        self.0.join()
    }
}

struct ServerLoop {
    settings: Settings,
    access: Access,
    post: Post,
    core: Core,
    id: Id,
    /// Servers whose link has ended, and when; the head should say so, too.
    missing: BTreeMap<Id, Instant>,
    _gate: Gate,
}

impl ServerLoop {
    fn open(head: SocketAddr, bind: IpAddr, settings: &Settings, rules: Rules) -> Result<Self, ServerError> {
        let mut post = Post::new(settings)?;
        let access = Access::from_settings(settings)?;
        let (listener, address) = Gate::bind(bind)?;
        let (id, terms) = enter(&mut post, &access, head, Some(address), settings)?;
        let gate = post.open(listener, access.clone(), id)?;
        let core = Core::new(id, terms, rules);
        Ok(Self { settings: settings.clone(), access, post, core, id, missing: BTreeMap::new(), _gate: gate })
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<(), ServerError> {
        while !stop.load(Ordering::SeqCst) {
            self.post.admit();
            match self.post.next(Instant::now() + Duration::from_secs(1)) {
                Event::Message(from, message) => self.hear(from, message),
                Event::Gone(HEAD, how) => {
                    return Err(ServerError::Ended { reason: format!("the head is gone: {how}") });
                }
                Event::Gone(id, _) if self.core.view().servers.contains_key(&id) => {
                    self.missing.insert(id, Instant::now());
                }
                Event::Gone(..) | Event::Nothing => {}
            }
            self.check_missing()?;
            if let Some(end) = self.core.ended() {
                return end.clone().map_or(Ok(()), |reason| Err(ServerError::Ended { reason }));
            }
        }
        Ok(())
    }

    fn hear(&mut self, from: Id, message: Message) {
        let number = self.core.view().number;
        let mut out = Vec::new();
        self.core.handle(from, message, &mut out);
        if self.core.view().number != number {
            self.call_others();
        }
        out.into_iter().for_each(|(to, message)| self.post.send(to, message));
    }

    /// Calls servers that were there before this one; those after it call here.
    fn call_others(&mut self) {
        let older: Vec<(Id, SocketAddr)> =
            self.core.view().servers.range(..self.id).map(|(&id, &address)| (id, address)).collect();
        for (id, address) in older {
            if self.post.has(id) {
                continue;
            }
            let now = Instant::now();
            let call = self.access.call_patiently(address, &claim(self.id, id), now + PATIENCE, now + 2 * PATIENCE);
            // One that cannot be reached is gone, which the head will say, or this server cannot go on.
            if call.and_then(|stream| self.post.add(id, stream)).is_err() {
                self.missing.insert(id, now);
            }
        }
        let view = self.core.view();
        let is_member = |id: Id| id == HEAD || view.servers.contains_key(&id) || view.workers.contains(&id);
        // Newer members may have called before this one has heard of them.
        let newest = view.servers.keys().chain(&view.workers).copied().max().unwrap_or(0);
        self.post.keep(|id| is_member(id) || id > newest);
        self.missing.retain(|id, _| view.servers.contains_key(id));
    }

    /// Two servers without a link between them cannot both go on.
    fn check_missing(&self) -> Result<(), ServerError> {
        let late = self.missing.iter().find(|(_, since)| since.elapsed() > self.settings.timeout);
        late.map_or(Ok(()), |(id, _)| {
            Err(ServerError::Ended { reason: format!("server {} has lost its link to server {id}", self.id) })
        })
    }
}
