//! Communicators: how ranks come together, in which order their calls are done, and how they end.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs::File,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
};

use crate::{
    collective::{self, Call},
    lock,
    nccl::{Failure, INTERNAL_ERROR, INVALID_ARGUMENT, SUCCESS, SYSTEM_ERROR},
    number::{Operation, Type},
    segment::{Aborted, Segment},
    setting,
    shared::{self, Address},
    stream::Stream,
    table::Table,
    transfer,
};

pub(crate) static COMMS: Table<Arc<Comm>> = Table::new(0x2000_0000);

/// Files behind identities that this process made and that some rank still has to open.
static FILES: Mutex<BTreeMap<Address, File>> = Mutex::new(BTreeMap::new());

/// One rank's part in a communicator.
pub(crate) struct Comm {
    pub(crate) segment: Segment,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    address: Address,
    /// Waits of this rank have to end.
    pub(crate) aborted: AtomicBool,
    /// What went wrong, in NCCL's numbers.
    error: AtomicI32,
    /// How many calls there were, so that one of them can fail.
    calls: AtomicU64,
    /// The round that this rank is in.
    pub(crate) round: AtomicU64,
    operations: Mutex<Vec<Option<(Type, Operation)>>>,
    turns: Mutex<Turns>,
    turn: Condvar,
}

/// Calls are executed in the order in which they were made, whatever their streams.
#[derive(Default)]
struct Turns {
    issued: u64,
    served: u64,
}

/// A new identity.
pub(crate) fn identity() -> Result<[u8; 128], Failure> {
    let made = shared::create(0).and_then(|file| Ok((shared::address(&file)?, file)));
    let (address, file) = made.map_err(|error| Failure(SYSTEM_ERROR, format!("no shared memory: {error}")))?;
    lock(&FILES).insert(address, file);
    let mut bytes = [0; 128];
    address.write(&mut bytes);
    Ok(bytes)
}

impl Comm {
    /// Opens the memory that the identity names, and waits for all other ranks there.
    pub(crate) fn join(id: &[u8; 128], rank: c_int, size: c_int) -> Result<Arc<Self>, Failure> {
        let invalid = |problem: String| Failure(INVALID_ARGUMENT, problem);
        let (Ok(rank), Ok(size)) = (usize::try_from(rank), usize::try_from(size)) else {
            return Err(invalid(format!("rank {rank} of {size}")));
        };
        if rank >= size {
            return Err(invalid(format!("rank {rank} of {size}")));
        }
        let address = Address::read(id).ok_or_else(|| invalid("this is no identity".into()))?;
        let opened = address.open().and_then(|file| Segment::new(&file, size));
        let segment = opened.map_err(|error| Failure(SYSTEM_ERROR, format!("the root cannot be reached: {error}")))?;
        let wanted = size as u32;
        let agreed = segment.agreed_size().compare_exchange(0, wanted, Ordering::SeqCst, Ordering::SeqCst);
        if let Err(other) = agreed
            && other != wanted
        {
            return Err(invalid(format!("rank {rank} expects {size} ranks, another one {other}")));
        }
        if segment.present(rank).swap(1, Ordering::SeqCst) != 0 {
            return Err(invalid(format!("there is a rank {rank} already")));
        }
        segment.joined().fetch_add(1, Ordering::SeqCst);
        segment.tell();
        let comm = Arc::new(Self {
            segment,
            rank,
            size,
            address,
            aborted: AtomicBool::new(false),
            error: AtomicI32::new(SUCCESS),
            calls: AtomicU64::new(0),
            round: AtomicU64::new(0),
            operations: Mutex::default(),
            turns: Mutex::default(),
            turn: Condvar::new(),
        });
        // The caller does not have it yet, so it cannot be aborted.
        let _ = comm.segment.wait(&comm.aborted, || comm.is_complete());
        Ok(comm)
    }

    /// Whether all ranks have joined; then no rank needs to open the file any more.
    fn is_complete(&self) -> bool {
        let complete = self.segment.joined().load(Ordering::SeqCst) as usize == self.size;
        if complete {
            self.forget();
        }
        complete
    }

    fn forget(&self) {
        lock(&FILES).remove(&self.address);
    }

    /// The state as NCCL reports it.
    pub(crate) fn state(&self) -> c_int {
        self.error.load(Ordering::SeqCst)
    }

    /// An error if there was one before.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.state() {
            SUCCESS => Ok(()),
            error => Err(Failure(error, "the communicator has failed before".into())),
        }
    }

    /// Counts a call. Returns an error if the call is to fail at once, otherwise whether it is to fail at its end.
    pub(crate) fn count(&self) -> Result<bool, Failure> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if setting("STAND_IN_NCCL_FAIL") == Some(number) {
            return Err(Failure(SYSTEM_ERROR, format!("call {number} fails, as it was told")));
        }
        Ok(setting("STAND_IN_NCCL_FAIL_LATER") == Some(number))
    }

    /// A new operation of this type.
    pub(crate) fn add_operation(&self, dtype: Type, operation: Operation) -> c_int {
        let mut operations = lock(&self.operations);
        operations.push(Some((dtype, operation)));
        (Operation::KNOWN.len() + operations.len() - 1) as c_int
    }

    /// Removes an operation; returns whether there was one.
    pub(crate) fn remove_operation(&self, code: c_int) -> bool {
        let index = usize::try_from(code).ok().and_then(|code| code.checked_sub(Operation::KNOWN.len()));
        let mut operations = lock(&self.operations);
        index.and_then(|index| operations.get_mut(index)?.take()).is_some()
    }

    /// What a number means for elements of this type.
    pub(crate) fn operation(&self, code: c_int, dtype: Type) -> Option<Operation> {
        let code = usize::try_from(code).ok()?;
        match code.checked_sub(Operation::KNOWN.len()) {
            None => Operation::KNOWN.get(code).copied(),
            Some(index) => {
                let (made_for, operation) = lock(&self.operations).get(index).copied().flatten()?;
                (made_for == dtype).then_some(operation)
            }
        }
    }

    /// Has a stream execute these calls as one.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Stream, calls: Vec<Call>) -> Result<(), Failure> {
        let mine = {
            let mut turns = lock(&self.turns);
            turns.issued += 1;
            turns.issued - 1
        };
        if mine == 0 && setting("STAND_IN_NCCL_LAZY") == Some(1) {
            self.meet()?;
        }
        let comm = self.clone();
        stream.push(move || {
            let turns = lock(&comm.turns);
            let waiting = comm.turn.wait_while(turns, |turns| turns.served < mine && !comm.is_aborted());
            drop(waiting.unwrap_or_else(PoisonError::into_inner));
            comm.perform(&calls);
            lock(&comm.turns).served += 1;
            comm.turn.notify_all();
        });
        Ok(())
    }

    /// Waits until all ranks have come here, as does an NCCL that connects ranks only when it first needs to.
    fn meet(&self) -> Result<(), Failure> {
        let connected = self.segment.connected();
        connected.fetch_add(1, Ordering::SeqCst);
        self.segment.tell();
        let all = || connected.load(Ordering::SeqCst) as usize == self.size;
        self.segment.wait(&self.aborted, all).map_err(|Aborted| Failure(INTERNAL_ERROR, "it was aborted".into()))
    }

    fn perform(&self, calls: &[Call]) {
        if self.is_aborted() || self.error.load(Ordering::SeqCst) != SUCCESS {
            return;
        }
        if calls.iter().any(|call| call.fails) {
            return self.fail(Failure(SYSTEM_ERROR, "a call fails later, as it was told".into()));
        }
        let transfers: Vec<_> = calls.iter().filter_map(Call::transfer).collect();
        let collectives = calls.iter().filter(|call| call.transfer().is_none());
        let done = collectives.map(|call| collective::run(self, call)).collect::<Result<Vec<_>, _>>();
        if let Err(Interruption::Failed(problem)) = done.and_then(|_| transfer::run(self, &transfers)) {
            self.fail(Failure(INTERNAL_ERROR, problem));
        }
    }

    fn fail(&self, failure: Failure) {
        let code = failure.0;
        failure.report();
        self.error.store(code, Ordering::SeqCst);
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Ends all waits of this rank.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        drop(lock(&self.turns));
        self.turn.notify_all();
        self.segment.tell();
        self.forget();
    }
}

/// Why a call was not completed.
pub(crate) enum Interruption {
    Aborted,
    Failed(String),
}

impl From<Aborted> for Interruption {
    fn from(_: Aborted) -> Self {
        Interruption::Aborted
    }
}
