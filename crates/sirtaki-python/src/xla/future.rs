//! The end of a call: XLA learns of it when the engine has let go of the call's memory, and not before, because XLA then
//! uses it for something else, also after an error.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    abi::{Api, Code, ErrorArguments, FutureArguments, FutureErrorArguments, OLDEST_MINOR},
    workers,
};

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
    pub(super) fn future(self) -> Result<(Future, *mut c_void), *mut c_void> {
        let mut arguments = FutureArguments::new(ptr::null_mut());
        // SAFETY: the arguments are as declared.
        let error = unsafe { (self.api().create_future)(&raw mut arguments) };
        if !error.is_null() {
            return Err(error);
        }
        let end = End { xla: self, future: arguments.future, problem: Mutex::new(None) };
        Ok((Future(Arc::new(end)), arguments.future))
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
    xla: Xla,
    future: *mut c_void,
    problem: Mutex<Option<(Code, String)>>,
}

// SAFETY: XLA's futures may be completed by any thread.
unsafe impl Send for End {}
// SAFETY: the pointer is only used when it is dropped.
unsafe impl Sync for End {}

impl Drop for End {
    fn drop(&mut self) {
        let promised = Promised(self.xla, self.future);
        match self.problem.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            None => workers::perform(move || promised.complete()),
            // Nothing follows in the program, so this takes no time, and nobody has to wait for it at the end.
            Some((code, text)) => promised.fail(code, &text),
        }
    }
}

/// A future that is still to be completed.
struct Promised(Xla, *mut c_void);

// SAFETY: XLA's futures may be completed by any thread.
unsafe impl Send for Promised {}

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
