//! The head: admits members, notices who is gone, numbers views. One thread in the process that started the job.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sirtaki_comm::{
    Settings,
    secure::{Access, Gate},
};

use super::{
    member_thread::MemberThread,
    post::{Event, Post},
};
use crate::{
    ServerError,
    decide::{
        HEAD, Id,
        clock::Delay,
        message::{Kind, Message, Terms},
        view::Membership,
    },
};

/// How long last words may take to go out.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a service is like.
#[derive(Debug, Clone, Copy)]
pub struct HeadOptions {
    /// How far workers may be apart.
    pub delay: Delay,
    /// How many servers have each block.
    pub copies: usize,
    /// So many servers have to be there before it begins.
    pub servers: usize,
    /// So many workers have to be there before it begins.
    pub workers: usize,
}

/// A head at work. Dropping it ends the service.
#[derive(Debug)]
pub struct Head {
    address: SocketAddr,
    thread: MemberThread,
}

impl Head {
    /// Begins to admit members, at a port of the system's choice.
    pub fn open(bind: IpAddr, settings: &Settings, options: HeadOptions) -> Result<Self, ServerError> {
        let HeadOptions { delay, copies, servers, workers } = options;
        if copies == 0 || servers == 0 || workers == 0 || copies > servers {
            let problem = format!(
                "{servers} servers, {workers} workers and {copies} copies; hint: there is at least one of each, and a \
                 server has at most one copy of a block"
            );
            return Err(ServerError::Invalid { problem });
        }
        let terms = Terms { delay, copies: copies as u32 };
        let post = Post::new(settings)?;
        let (listener, address) = Gate::bind(bind)?;
        let gate = post.open(listener, Access::from_settings(settings)?, HEAD)?;
        let ringer = post.ringer();
        let mut head = HeadLoop { post, members: Membership::new(terms, servers, workers), strangers: Id::MAX };
        let work = move |stop: &AtomicBool| {
            head.run(stop);
            drop(gate);
            Ok(())
        };
        Ok(Self { address, thread: MemberThread::start("sirtaki-head", ringer, work)? })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until all workers have left or the service has ended for another reason.
    pub fn join(self) -> Result<(), ServerError> {
        self.thread.join()
    }
}

struct HeadLoop {
    post: Post,
    members: Membership,
    /// The number of the last caller that has not entered yet.
    strangers: Id,
}

impl HeadLoop {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) && !self.members.is_over() {
            for stream in self.post.callers() {
                self.strangers -= 1;
                let _ = self.post.add(self.strangers, stream);
            }
            let mut out = Vec::new();
            match self.post.next(Instant::now() + Duration::from_secs(1)) {
                Event::Message(from, message) => self.hear(from, message, &mut out),
                Event::Gone(id, _) => self.members.leave(id, &mut out),
                Event::Nothing => {}
            }
            out.into_iter().for_each(|(to, message)| self.post.send(to, message));
        }
        let end = Instant::now() + LAST_WORDS;
        while !self.post.is_flushed() && Instant::now() < end {
            self.post.next(end);
        }
    }

    fn hear(&mut self, from: Id, message: Message, out: &mut Vec<(Id, Message)>) {
        match message.kind {
            Kind::Enter(listens) => {
                // Its link has to have its number before anything is sent to it.
                let id = self.members.enter(listens, out);
                self.post.rename(from, id);
            }
            Kind::Settled { view, largest } => self.members.settled(from, view, largest, out),
            Kind::Leave => self.members.leave(from, out),
            _ => {}
        }
    }
}
