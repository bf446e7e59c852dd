//! What the owner thread sleeps on beside its sockets. Under loom, a model of the kernel's guarantee: ringing the bell
//! also ends a sleep that begins later.

#[cfg(not(loom))]
mod real {
    use std::{
        os::fd::{AsFd, OwnedFd},
        time::Duration,
    };

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use sirtaki_comm::CommError;

    /// A descriptor that can be rung.
    #[derive(Debug)]
    pub(crate) struct Bell(OwnedFd);

    impl Bell {
        pub(crate) fn new() -> Result<Self, CommError> {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            bell.map(Self).map_err(|error| CommError::io("cannot make an event descriptor", error))
        }

        pub(crate) fn ring(&self) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        /// Sleeps until it is rung or one of the sockets is ready, at most `limit`. The flags say whether a socket also
        /// has something to write.
        pub(crate) fn sleep(&self, sockets: &[(OwnedFd, bool)], limit: Option<Duration>) {
            let flags = |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&self.0, PollFlags::IN)];
            fds.extend(sockets.iter().map(|(socket, writes)| PollFd::from_borrowed_fd(socket.as_fd(), flags(*writes))));
            let limit = limit
                .map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
            let _ = poll(&mut fds, limit.as_ref());
            if !fds[0].revents().is_empty() {
                let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
            }
        }
    }
}

#[cfg(loom)]
mod real {
    use std::{os::fd::OwnedFd, time::Duration};

    use loom::sync::{Condvar, Mutex};
    use sirtaki_comm::CommError;

    #[derive(Debug)]
    pub(crate) struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Bell {
        pub(crate) fn new() -> Result<Self, CommError> {
            Ok(Self { rung: Mutex::new(false), changed: Condvar::new() })
        }

        pub(crate) fn ring(&self) {
            *self.rung.lock().expect("the model's lock is never poisoned") = true;
            self.changed.notify_all();
        }

        pub(crate) fn sleep(&self, _: &[(OwnedFd, bool)], _: Option<Duration>) {
            let mut rung = self.rung.lock().expect("the model's lock is never poisoned");
            while !*rung {
                rung = self.changed.wait(rung).expect("the model's lock is never poisoned");
            }
            *rung = false;
        }
    }
}

pub(crate) use real::Bell;
