//! Collectives inside XLA's programs, for JAX: one asynchronous handler of XLA's C interface for foreign functions.
//!
//! The handler submits a call's arrays to the engine and returns; XLA goes on with what does not depend on them. It must
//! never wait: XLA has few threads, and ranks that use them up waiting for different collectives wait for ever. Unless arrays
//! are large it polls for a tenth of a millisecond at most, because waking other threads takes longer than such a call.
//! A rank whose programs may still submit something must not be taken for one that will not, which Python announces.
//!
//! - `abi`: XLA's structures.
//! - `frame`: reading a call.
//! - `call`: what it asks for, and what becomes of it.
//! - `future`: telling XLA that it is done.
//! - `workers`: threads in which XLA's programs continue.

mod abi;
mod call;
mod frame;
mod future;
mod workers;

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use pyo3::{Bound, PyAny, PyResult, Python, ffi, pyfunction};

use self::{
    abi::{Code, Frame},
    call::XlaCall,
    future::Xla,
};

/// What JAX expects such capsules to be called.
const NAME: &CStr = c"xla._CUSTOM_CALL_TARGET";

type Handler = unsafe extern "C" fn(*mut Frame) -> *mut c_void;

/// The handler for programs on processors, and one for all others, which says what to do instead.
#[pyfunction]
pub(crate) fn xla_handlers(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    // A program has one piece of memory for all its intermediate results, and runs in a thread of XLA's.
    sirtaki_engine::heap::share();
    Ok((capsule(py, perform)?, capsule(py, refuse)?))
}

fn capsule(py: Python<'_>, handler: Handler) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: a function and a name, both of which live for ever; the result is a new reference or an error that is set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(handler as *mut c_void, NAME.as_ptr(), None)) }
}

/// Submits a call to the engine.
unsafe extern "C" fn perform(frame: *mut Frame) -> *mut c_void {
    // SAFETY: XLA calls this with a frame of its own.
    unsafe { handle(frame, submit) }
}

/// Says that arrays in the memory of a GPU cannot be used.
unsafe extern "C" fn refuse(frame: *mut Frame) -> *mut c_void {
    // SAFETY: as above.
    unsafe { handle(frame, |_, xla| xla.error(Code::Unimplemented, call::NOT_ON_GPUS)) }
}

/// Has a call handled, if it is one and not a question.
///
/// # Safety
/// `frame` is what XLA passes to a handler.
unsafe fn handle(frame: *mut Frame, handle: impl FnOnce(&mut Frame, Xla) -> *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise; the table of functions is there unless the version is asked for.
    unsafe {
        let Some(frame) = frame.as_mut() else { return ptr::null_mut() };
        if frame::handshake(frame) || frame.stage != abi::EXECUTE || frame.api.is_null() {
            return ptr::null_mut();
        }
        let xla = Xla::new(frame.api);
        if !xla.is_complete() {
            return xla
                .error(Code::Unimplemented, "this version of JAX is too old for sirtaki\nhint: use JAX 0.5 or newer");
        }
        handle(frame, xla)
    }
}

fn submit(frame: &mut Frame, xla: Xla) -> *mut c_void {
    // SAFETY: XLA's frame, which lives until the handler returns.
    let call = match unsafe { XlaCall::read(frame) } {
        Ok(call) => call,
        Err((code, problem)) => return xla.error(code, &problem),
    };
    match xla.future() {
        Ok((future, started)) => {
            frame.future = started.raw;
            let is_brief = call.is_brief();
            call.submit(future);
            if is_brief {
                started.look_for_a_moment()
            } else {
                started.leave()
            }
            ptr::null_mut()
        }
        Err(error) => error,
    }
}
