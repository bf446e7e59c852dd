//! The end of a call: XLA learns of it when the engine has let go of the call's memory, and not before, because XLA then
//! uses it for something else, also after an error.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    abi::{Api, Code, ErrorArguments, FutureArguments, FutureErrorArguments, OLDEST_MINOR},
    workers,
};

/// How long a handler polls for the end of a call before it returns.
const LOOKING: Duration = Duration::from_micros(100);

/// XLA's functions.
#[derive(Clone, Copy)]
pub(super) struct Xla(*const Api);

// SAFETY: a table that XLA never changes and whose functions any thread may call.
unsafe impl Send for Xla {}
// SAFETY: as above.
unsafe impl Sync for Xla {}

impl Xla {
    /// # Safety
    /// `api` is what XLA passes in a frame.
    pub(super) unsafe fn new(api: *const Api) -> Self {
        Self(api)
    }

    fn api(&self) -> &Api {
        // SAFETY: promised when this was made; the table lives as long as the process.
        unsafe { &*self.0 }
    }

    /// Whether it has all functions that are used here. The table's size would say so, too, but is wrong in old versions.
    pub(super) fn is_complete(&self) -> bool {
        self.api().version.minor >= OLDEST_MINOR
    }

    /// An error, for XLA to raise and to free.
    pub(super) fn error(&self, code: Code, text: &str) -> *mut c_void {
        let message = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let size = size_of::<ErrorArguments>();
        let mut arguments = ErrorArguments { size, extensions: ptr::null_mut(), message: message.as_ptr(), code };
        // SAFETY: the arguments are as declared, and XLA copies the message.
        unsafe { (self.api().create_error)(&raw mut arguments) }
    }

    /// A future for a call; the error is XLA's own.
    pub(super) fn future(self) -> Result<(Future, Started), *mut c_void> {
        let mut arguments = FutureArguments::new(ptr::null_mut());
        // SAFETY: the arguments are as declared.
        let error = unsafe { (self.api().create_future)(&raw mut arguments) };
        if !error.is_null() {
            return Err(error);
        }
        let looker = Arc::new(Looker::default());
        let promised = Promised(self, arguments.future);
        let end = End { promised: Some(promised), problem: Mutex::new(None), looker: looker.clone() };
        Ok((Future(Arc::new(end)), Started { raw: arguments.future, looker }))
    }
}

impl FutureArguments {
    fn new(future: *mut c_void) -> Self {
        Self { size: size_of::<Self>(), extensions: ptr::null_mut(), future }
    }
}

/// Keeps a call from being completed; the last one that is dropped completes it.
#[derive(Clone)]
pub(super) struct Future(Arc<End>);

impl Future {
    /// The call has failed. The first reason counts.
    pub(super) fn fail(&self, code: Code, text: String) {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((code, text));
    }
}

struct End {
    promised: Option<Promised>,
    problem: Mutex<Option<Problem>>,
    looker: Arc<Looker>,
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(promised) = self.promised.take() else { return };
        let problem = self.problem.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match self.looker.offer((promised, problem)) {
            None => (),
            Some((promised, None)) => workers::perform(move || promised.complete()),
            // Nothing follows in the program, so this takes no time, and nobody has to wait for it at the end.
            Some((promised, Some((code, text)))) => promised.fail(code, &text),
        }
    }
}

type Problem = (Code, String);
type Ended = (Promised, Option<Problem>);

/// The handler's side of a call.
pub(super) struct Started {
    /// What XLA gets.
    pub(super) raw: *mut c_void,
    looker: Arc<Looker>,
}

impl Started {
    /// Leaves the rest to whoever ends the call.
    pub(super) fn leave(self) {
        self.look(Duration::ZERO);
    }

    /// Polls for a moment: a call that ends meanwhile is completed here, and no other thread has to wake for it.
    pub(super) fn look_for_a_moment(self) {
        self.look(LOOKING);
    }

    fn look(self, limit: Duration) {
        let began = Instant::now();
        while !self.looker.ended.load(Ordering::Acquire) && began.elapsed() < limit {
            thread::yield_now();
        }
        if let Some((promised, problem)) = self.looker.go() {
            match problem {
                None => promised.complete(),
                Some((code, text)) => promised.fail(code, &text),
            }
        }
    }
}

/// Where a call that has ended meets the handler that is still looking for its end.
#[derive(Default)]
struct Looker {
    state: Mutex<State>,
    ended: AtomicBool,
}

#[derive(Default)]
enum State {
    #[default]
    Looking,
    Ended(Ended),
    Gone,
}

impl Looker {
    /// Passes the end on to the handler, or returns it if that no longer looks.
    fn offer(&self, end: Ended) -> Option<Ended> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Looking => {
                *state = State::Ended(end);
                self.ended.store(true, Ordering::Release);
                None
            }
            _ => Some(end),
        }
    }

    /// Looks no longer; returns the end if it came.
    fn go(&self) -> Option<Ended> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Ended(end) => Some(end),
            _ => None,
        }
    }
}

/// A future that is still to be completed.
struct Promised(Xla, *mut c_void);

// SAFETY: XLA's futures may be completed by any thread.
unsafe impl Send for Promised {}
// SAFETY: a reference to it is of no use.
unsafe impl Sync for Promised {}

impl Promised {
    fn complete(self) {
        let mut arguments = FutureArguments::new(self.1);
        // SAFETY: the future is XLA's and not completed yet. An error could only say that it was.
        unsafe { (self.0.api().complete)(&raw mut arguments) };
    }

    fn fail(self, code: Code, text: &str) {
        let (size, error) = (size_of::<FutureErrorArguments>(), self.0.error(code, text));
        let mut arguments = FutureErrorArguments { size, extensions: ptr::null_mut(), future: self.1, error };
        // SAFETY: as above; XLA takes the error over.
        unsafe { (self.0.api().fail)(&raw mut arguments) };
    }
}
