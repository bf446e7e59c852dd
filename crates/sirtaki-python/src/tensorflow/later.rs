//! Waiting without a thread, for graphs of `tf.compat.v1` sessions.
//!
//! Sessions run ops in any order, different on every rank, so waits that occupy threads would sooner or later occupy
//! all of them, on every rank for other tensors. Here TensorFlow's asynchronous kernels are used: they return at once
//! and call `done` later. The C interface lends `done`, a `std::function<void()>`, only until the kernel returns, so
//! it is moved away, as C++ would move it: in the C++ library that all packages of TensorFlow for Linux use it is four
//! words, which are copied, and the second half of the original is cleared, which makes it empty. Before the first one is
//! moved, TensorFlow is given one that was made here to call. If that does not work, the layout is another, and kernels
//! wait before they return.
//!
//! TensorFlow 2.12 has no such kernels in its C interface, so there they wait, too.
//!
//! Functions do not need this: they run these ops in the order of the program, which is the same on every rank.

use std::{
    ffi::{c_int, c_void},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use crate::tensorflow::{
    context::{Context, Failure},
    interface::{self, Pointer},
    kernels, pending,
};

type Work = Box<dyn FnOnce() + Send>;

/// C++'s `std::function<void()>`.
#[repr(C)]
struct Function {
    stored: [*mut c_void; 2],
    manager: Option<Manager>,
    invoker: Option<unsafe extern "C" fn(*const [*mut c_void; 2])>,
}

type Manager = unsafe extern "C" fn(*mut Function, *const Function, i32) -> bool;

/// Tells a manager to destroy what is stored.
const DESTROY: i32 = 3;

/// A `done` of our own.
struct Done(Box<Function>);

// SAFETY: TensorFlow expects it to be called by any thread.
unsafe impl Send for Done {}

impl Done {
    /// Moves it out of the kernel's.
    ///
    /// # Safety
    /// The pointer must be the one that TensorFlow passes to an asynchronous kernel, with the layout above.
    unsafe fn take(done: Pointer) -> Self {
        let original = done.cast::<Function>();
        // SAFETY: the caller's promise. The original is empty afterwards, so it destroys nothing.
        unsafe {
            let moved = Box::new(original.read());
            (*original).manager = None;
            (*original).invoker = None;
            Self(moved)
        }
    }

    fn call(mut self) {
        let function: *mut Function = &raw mut *self.0;
        // SAFETY: it is called once, and destroyed as C++ does it.
        unsafe {
            interface::run_done(function.cast());
            if let Some(manager) = (*function).manager {
                manager(function, function, DESTROY);
            }
        }
    }
}

/// A function for TensorFlow to call. What is beyond it is for C++ libraries whose functions are larger: they find an
/// object there whose methods do nothing.
#[repr(C)]
struct Trial {
    function: Function,
    beyond: [*const Object; 12],
}

#[repr(C)]
struct Object(*const [unsafe extern "C" fn(); 16]);

/// Whether `done` has the layout above, and so can be moved.
fn is_movable() -> bool {
    unsafe extern "C" fn manage(_: *mut Function, _: *const Function, _: i32) -> bool {
        false
    }
    unsafe extern "C" fn invoke(stored: *const [*mut c_void; 2]) {
        // SAFETY: this is stored only in the function below, where it points to that.
        unsafe { (*(*stored)[0].cast::<AtomicBool>()).store(true, Ordering::Relaxed) }
    }
    unsafe extern "C" fn nothing() {}
    static MOVABLE: OnceLock<bool> = OnceLock::new();
    *MOVABLE.get_or_init(|| {
        let (called, methods) = (AtomicBool::new(false), [nothing as unsafe extern "C" fn(); 16]);
        let object = Object(&raw const methods);
        let stored = [(&raw const called).cast_mut().cast(), std::ptr::null_mut()];
        let function = Function { stored, manager: Some(manage), invoker: Some(invoke) };
        let mut trial = Trial { function, beyond: [&raw const object; 12] };
        // SAFETY: everything that it may call is above, and lives until it returns.
        unsafe { interface::run_done((&raw mut trial).cast()) };
        called.into_inner()
    })
}

/// A kernel's context, which lives until `done` is called.
struct Lasting(Pointer);

// SAFETY: TensorFlow expects it to be used by any thread until then.
unsafe impl Send for Lasting {}

pub(super) unsafe extern "C" fn finish(_: Pointer, context: Pointer, done: Pointer) {
    // SAFETY: as in `run`.
    let first = unsafe { Context::new(context) }.outputs();
    run(context, done, first, kernels::finish);
}

pub(super) unsafe extern "C" fn finish_new(_: Pointer, context: Pointer, done: Pointer) {
    run(context, done, 0, kernels::finish_new);
}

fn run(context: Pointer, done: Pointer, first: c_int, compute: fn(&Context) -> Result<(), Failure>) {
    // SAFETY: TensorFlow passes it to the kernel that calls this.
    let numbers = kernels::tickets(&unsafe { Context::new(context) }, first).unwrap_or_default();
    if pending::all_done(&numbers) || !is_movable() {
        super::register::run(context, compute);
        // SAFETY: it is TensorFlow's, and the kernel has not returned.
        return unsafe { interface::run_done(done) };
    }
    // SAFETY: it has that layout, as was tried.
    let (done, context) = (unsafe { Done::take(done) }, Lasting(context));
    let work = move || {
        let context = context;
        super::register::run(context.0, compute);
        done.call();
    };
    after(&numbers, Box::new(work));
}

/// Has a thread do something once all of these are done. The engine's own must not: it would continue the graph.
fn after(numbers: &[i64], work: Work) {
    let left = Arc::new((AtomicUsize::new(numbers.len() + 1), std::sync::Mutex::new(Some(work))));
    let one_less = move |left: &(AtomicUsize, std::sync::Mutex<Option<Work>>)| {
        if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            let work = left.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(work) = work {
                worker(work);
            }
        }
    };
    for ticket in pending::tickets(numbers) {
        let left = left.clone();
        match ticket {
            Some(ticket) => ticket.when_done(move || one_less(&left)),
            None => one_less(&left),
        }
    }
    one_less(&left);
}

/// Passes work to the one thread for it.
fn worker(work: Work) {
    static WORKER: OnceLock<mpsc::Sender<Work>> = OnceLock::new();
    let sender = WORKER.get_or_init(|| {
        let (sender, works) = mpsc::channel::<Work>();
        let run = move || works.into_iter().for_each(|work| work());
        let started = thread::Builder::new().name("sirtaki-graph".into()).spawn(run);
        // Without a thread, nothing takes what is sent; it comes back below.
        drop(started);
        sender
    });
    if let Err(mpsc::SendError(work)) = sender.send(work) {
        work();
    }
}
