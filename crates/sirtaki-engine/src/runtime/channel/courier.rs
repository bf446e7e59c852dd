//! The thread that serves all links of a rank's channel. It exists from the first message on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use crate::runtime::{
    bell::Bell,
    fail,
    shared::{Shared, now},
};

/// How long the last bytes may take at the end.
const PATIENCE: Duration = Duration::from_secs(1);

impl Shared {
    /// Starts the thread unless there is one.
    pub(super) fn start_courier(self: &Arc<Self>) {
        let mut courier = self.channel.courier.lock().unwrap_or_else(PoisonError::into_inner);
        if courier.is_some() || self.channel.bell.get().is_some() {
            return;
        }
        let shared = self.clone();
        let started = Bell::new().map(|bell| drop(self.channel.bell.set(bell))).and_then(|()| {
            let thread = thread::Builder::new().name("sirtaki-channel".into()).spawn(move || run(&shared));
            thread.map_err(|error| sirtaki_comm::CommError::io("cannot start a thread", error))
        });
        match started {
            Ok(thread) => *courier = Some(thread),
            Err(error) => self.complain(error.to_alarm()),
        }
    }

    /// Ends the thread and all links. What was sent before is read by the others first.
    pub(crate) fn close_channel(self: &Arc<Self>) {
        let mut state = self.channel.state();
        state.closing = true;
        state.peers.values_mut().for_each(|peer| peer.pipe.close());
        let gates = std::mem::take(&mut state.gates);
        drop(state);
        self.channel.ring();
        drop(gates);
        let courier = self.channel.courier.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(courier) = courier {
            let _ = courier.join();
        }
        self.channel.state().peers.clear();
    }
}

/// Serves until the channel is closed. If it panics, the engine ends.
fn run(shared: &Arc<Shared>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| serve(shared))) {
        shared.complain(fail::panicked(&shared.group, "channel", &*panic));
    }
}

fn serve(shared: &Arc<Shared>) {
    let Some(bell) = shared.channel.bell.get() else { return };
    let (mut sockets, mut links) = (Vec::new(), 0);
    let mut closing = None;
    loop {
        let mut state = shared.channel.state();
        let came = state.turn(shared);
        let time = now();
        if state.closing {
            let since = *closing.get_or_insert(time);
            let open = state.peers.values().any(|peer| peer.pipe.is_connected());
            if !open || state.broken || time.saturating_sub(since) >= PATIENCE {
                return;
            }
        }
        if std::mem::replace(&mut links, state.links) != state.links {
            sockets = state.sockets();
        }
        state.note_writes(&mut sockets);
        let (settled, _) = (state.take_settled(), state.take_wakes());
        let meetings = state.take_meetings();
        shared.channel.settling.fetch_add(settled.len(), Ordering::SeqCst);
        drop(state);
        if came {
            shared.channel.moves.fetch_add(1, Ordering::Relaxed);
        }
        shared.finish_messages(settled);
        meetings.into_iter().for_each(|rank| shared.meet(rank));
        if !came {
            bell.sleep(&sockets, closing.map(|_| PATIENCE));
        }
    }
}
