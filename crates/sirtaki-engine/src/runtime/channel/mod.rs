//! Messages between two ranks, beside the collectives: they do not wait for a vote, and no collective waits for them.
//!
//! - `state` with `pipe`: everything that is under way, behind one lock that is held for moments.
//! - `courier`: the thread that reads from all links and writes what did not fit. A caller writes itself what it can, and
//!   looks for what it waits for before it sleeps.
//! - `meet`: links, made when two ranks first need one: shared memory on a host, TCP between hosts.
//! - `report`: what waits, for the deadlock proof and for people.
//!
//! Rejected: moving messages in the owner thread, which is away in collectives that may wait for ranks which wait for a
//! message; and an engine per pair of ranks, which costs two threads and a meeting each.

mod courier;
mod meet;
mod pipe;
mod report;
mod state;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use sirtaki_comm::{CommError, Rank};

pub(crate) use self::{meet::Post, report::Reports};
use self::{
    pipe::Parcel,
    state::{Receiving, Settled, State},
};
use crate::{
    EngineError,
    decide::{
        channel::{MessageForm, Tag},
        request::TensorPlace,
    },
    runtime::{
        bell::Bell,
        memory::Tensor,
        rest::LOOKING,
        shared::{Shared, now},
        ticket::{Observers, Output, Pledge, Promise, Ticket},
    },
    telemetry::{record::TracedMessage, recorder::Stage},
};

/// Most dimensions of a message.
const DIMENSIONS: usize = 64;
/// Most bytes of a label that is kept.
const LABEL: usize = 200;
/// Most receives of a rank that wait at a time.
const RECEIVES: usize = 1 << 16;

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This rank.
    Rank(Rank),
    /// The first that has one.
    Any,
}

/// What a receiver is prepared for.
#[derive(Debug)]
pub enum Expected {
    /// Whatever comes, in new memory.
    Anything,
    /// Only this, in new memory. Anything else is an error on both sides.
    Form(MessageForm),
    /// Only this type and shape, in this memory.
    Into(Tensor, Vec<usize>),
}

/// One message, as its sender or its receiver sees it.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) label: String,
    pub(crate) tag: Tag,
    pub(crate) sends: bool,
    /// The rank at the other end, once that is certain.
    pub(crate) peer: Option<Rank>,
    pub(crate) submitted: Duration,
    /// When its bytes began to move.
    pub(crate) began: Duration,
    pub(crate) pledge: Pledge,
}

/// This rank's channel to all others.
#[derive(Default)]
pub(crate) struct Channel {
    state: Mutex<State>,
    /// Made when it is first needed, with the courier.
    bell: OnceLock<Bell>,
    courier: Mutex<Option<JoinHandle<()>>>,
    /// Changes whenever a frame is handed in or dealt with.
    moves: AtomicU64,
    /// Results that have left the state and have not reached their callers yet.
    settling: AtomicUsize,
    /// What other ranks wait for, on rank 0.
    pub(crate) reports: Mutex<Reports>,
}

impl Channel {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that changes whenever anything moves.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Wakes the courier, if there is one.
    fn ring(&self) {
        self.bell.get().into_iter().for_each(Bell::ring);
    }
}

impl Shared {
    /// Sends a tensor to a rank that asks for it. The ticket gives the tensor back once its memory is free.
    pub(crate) fn send_message(
        self: &Arc<Self>,
        to: Rank,
        tag: Tag,
        label: &str,
        shape: &[usize],
        tensor: Tensor,
    ) -> Ticket {
        let form = MessageForm { dtype: tensor.dtype(), shape: shape.to_vec() };
        let problem = self.problem(Some(to), &form).or_else(|| does_not_hold(&tensor, &form));
        self.start((label, tag, true, Some(to)), problem, |state, job| {
            let bytes = tensor.byte_len() as u64;
            self.recorder.note(Stage::Sending, to as u64, job.submitted.as_nanos() as u64, bytes, &job.label);
            state.send(self, to, Parcel { tensor, form, job });
        })
    }

    /// Receives a message of this tag.
    pub(crate) fn receive_message(self: &Arc<Self>, from: Source, tag: Tag, label: &str, expected: Expected) -> Ticket {
        let peer = match from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        };
        let (form, tensor) = match expected {
            Expected::Anything => (None, None),
            Expected::Form(form) => (Some(form), None),
            Expected::Into(tensor, shape) => (Some(MessageForm { dtype: tensor.dtype(), shape }), Some(tensor)),
        };
        let placed = || tensor.as_ref().zip(form.as_ref()).and_then(|(tensor, form)| does_not_hold(tensor, form));
        let plain = MessageForm { dtype: sirtaki_comm::DType::U8, shape: Vec::new() };
        let problem = self.problem(peer, form.as_ref().unwrap_or(&plain)).or_else(placed);
        self.start((label, tag, false, peer), problem, |state, job| {
            if state.receives() >= RECEIVES {
                let problem = format!("{RECEIVES} receives wait already; hint: wait for some of them first");
                return state.settle(job, Err(invalid(label, problem)));
            }
            let bytes = form.as_ref().and_then(MessageForm::bytes).unwrap_or(0) as u64;
            let rank = peer.unwrap_or(self.group.size()) as u64;
            self.recorder.note(Stage::Receiving, rank, job.submitted.as_nanos() as u64, bytes, &job.label);
            state.receive(self, form, Receiving { job, tensor });
        })
    }

    /// Makes the ticket, and starts the message unless there is a problem.
    fn start(
        self: &Arc<Self>,
        (label, tag, sends, peer): (&str, Tag, bool, Option<Rank>),
        problem: Option<String>,
        begin: impl FnOnce(&mut State, Transfer),
    ) -> Ticket {
        let (stream, callers) = (self.telemetry.stream.clone(), self.callers.clone());
        callers.submit();
        let helper = Some(Arc::downgrade(self));
        let promise = Promise::new(1, Some(Observers { stream, callers, helper }));
        if let Some(problem) = problem {
            promise.fail(invalid(label, problem));
            return Ticket(promise);
        }
        let label = label.chars().take(LABEL).collect();
        let time = now();
        let pledge = Pledge(promise.clone());
        let job = Transfer { label, tag, sends, peer, submitted: time, began: time, pledge };
        self.with_state(|state| match &state.failure {
            Some(reason) => {
                let reason = reason.clone();
                state.fail(job, &reason);
            }
            None => begin(state, job),
        });
        Ticket(promise)
    }

    /// Changes the state, writes what can be written at once, and tells whoever waits.
    fn with_state(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut state = self.channel.state();
        change(&mut state);
        state.flush_changed();
        self.release(state);
        self.channel.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller that waits looks for its message itself for a moment, which saves the way through another thread.
    pub(crate) fn look_for_messages(self: &Arc<Self>, is_done: impl Fn() -> bool) {
        let until = now() + LOOKING;
        while !is_done() && now() < until {
            let Ok(mut state) = self.channel.state.try_lock() else {
                std::hint::spin_loop();
                continue;
            };
            if state.turn(self) {
                self.channel.moves.fetch_add(1, Ordering::Relaxed);
            }
            self.release(state);
        }
    }

    /// Hands out what has come of messages, without the lock, and sees to whatever the courier has to do.
    fn release(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let (settled, wakes, meets) = (state.take_settled(), state.take_wakes(), state.take_meetings());
        self.channel.settling.fetch_add(settled.len(), Ordering::SeqCst);
        drop(state);
        self.finish_messages(settled);
        meets.into_iter().for_each(|rank| self.meet(rank));
        if wakes {
            self.start_courier();
            self.channel.ring();
        }
    }

    /// Tells callers, and everybody who listens, what came of messages.
    fn finish_messages(&self, settled: Vec<Settled>) {
        let count = settled.len();
        for Settled { job, outcome } in settled {
            let ended = now().as_nanos() as u64;
            let (submitted, began) = (job.submitted.as_nanos() as u64, job.began.as_nanos() as u64);
            let peer = job.peer.unwrap_or(self.group.size());
            match &outcome {
                Ok(output) => {
                    let bytes = bytes_of(output);
                    let stage = if job.sends { Stage::Sent } else { Stage::Received };
                    self.recorder.note(stage, peer as u64, ended, bytes, &job.label);
                    let (label, sends) = (&job.label, job.sends);
                    self.telemetry.stream.message((submitted, began, ended), bytes, sends, || TracedMessage {
                        label: label.clone(),
                        sends,
                        peer,
                        bytes,
                        tag: job.tag,
                        times: (submitted, began, ended),
                    });
                }
                Err(_) => {
                    self.recorder.note(Stage::Failed, 0, ended, 0, &job.label);
                    self.telemetry.stream.failed(&job.label, submitted, ended);
                }
            }
            match outcome {
                Ok(output) => job.pledge.keep(0, output),
                Err(error) => job.pledge.fail(error),
            }
        }
        self.channel.settling.fetch_sub(count, Ordering::SeqCst);
    }

    /// Ends all messages, those still to come included; where `broken`, those on their way too.
    pub(crate) fn fail_messages(self: &Arc<Self>, reason: &CommError, broken: bool) {
        self.with_state(|state| {
            state.broken |= broken;
            state.fail_all(reason);
        });
    }

    /// A rank has left in good order.
    pub(crate) fn left_channel(self: &Arc<Self>, rank: Rank) {
        self.with_state(|state| state.someone_left(self, rank));
    }

    fn problem(&self, peer: Option<Rank>, form: &MessageForm) -> Option<String> {
        let (rank, size) = (self.group.rank(), self.group.size());
        match peer {
            Some(peer) if peer >= size => Some(format!("there is no rank {peer} among {size}")),
            Some(peer) if peer == rank => {
                Some(format!("rank {rank} cannot exchange messages with itself; hint: copy the tensor"))
            }
            None if size == 1 => Some("there is no other rank to receive from".into()),
            _ if form.shape.len() > DIMENSIONS => Some(format!("a message has at most {DIMENSIONS} dimensions")),
            _ if form.bytes().is_none() => Some(format!("there is no tensor of shape {:?}", form.shape)),
            _ => None,
        }
    }
}

fn does_not_hold(tensor: &Tensor, form: &MessageForm) -> Option<String> {
    if tensor.place() != TensorPlace::Host {
        return Some("messages are sent from the host's memory; hint: copy the tensor there first".into());
    }
    let differs = form.bytes() != Some(tensor.byte_len());
    differs.then(|| format!("{} {} do not make {}", tensor.len(), tensor.dtype().name(), form.describe()))
}

fn invalid(label: &str, problem: String) -> EngineError {
    EngineError::Invalid { tensor: label.into(), problem }
}

fn bytes_of(output: &Output) -> u64 {
    match output {
        Output::Tensor(tensor, _) | Output::Message { tensor, .. } => tensor.byte_len() as u64,
        _ => 0,
    }
}
