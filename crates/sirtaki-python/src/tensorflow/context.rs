//! A run of a kernel: its inputs, its outputs, and how it fails.

use std::ffi::{CString, c_int};

use sirtaki_engine::EngineError;

use crate::{
    error,
    tensorflow::{
        interface::{Pointer, tensorflow},
        tensor::Held,
    },
};

/// Why a kernel fails: TensorFlow's code, which decides the exception's class, and the text.
#[derive(Debug)]
pub(super) struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    /// A mistake of the program's.
    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self { code: 3, text: text.into() }
    }

    /// This process is in no state to do it.
    pub(super) fn precondition(text: impl Into<String>) -> Self {
        Self { code: 9, text: text.into() }
    }

    /// Somebody pressed Ctrl-C.
    pub(super) fn interrupted() -> Self {
        Self { code: 1, text: "interrupted while it waited for other ranks".into() }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let code = match error {
            EngineError::Mismatch(_) => 9,
            EngineError::Invalid { .. } => 3,
            // Not "aborted" or "unavailable": sessions that recover would start again, for ever.
            _ => 2,
        };
        Self { code, text: error::text(&error) }
    }
}

/// TensorFlow's object for outcomes.
pub(super) struct Status(Pointer);

impl Status {
    pub(super) fn new() -> Self {
        // SAFETY: this is how to make one.
        Self(unsafe { (tensorflow().new_status)() })
    }

    pub(super) fn pointer(&self) -> Pointer {
        self.0
    }

    pub(super) fn of(failure: &Failure) -> Self {
        let status = Self::new();
        let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the text is copied.
        unsafe { (tensorflow().set_status)(status.0, failure.code, text.as_ptr()) };
        status
    }

    /// What went wrong in a call that was given this object.
    pub(super) fn check(&self) -> Result<(), Failure> {
        // SAFETY: it is a status, and its message is a text that lives as long as it does.
        unsafe {
            let code = (tensorflow().code)(self.0);
            let text = || std::ffi::CStr::from_ptr((tensorflow().message)(self.0)).to_string_lossy().into_owned();
            if code == 0 { Ok(()) } else { Err(Failure { code, text: text() }) }
        }
    }
}

impl Failure {
    /// The text, for those who cannot pass on the code.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // SAFETY: it is deleted once, here.
        unsafe { (tensorflow().delete_status)(self.0) }
    }
}

/// A run of a kernel.
pub(super) struct Context(Pointer);

impl Context {
    /// # Safety
    /// The pointer must be the one that TensorFlow passes to a kernel, and must not be used after that returns.
    pub(super) unsafe fn new(context: Pointer) -> Self {
        Self(context)
    }

    pub(super) fn fail(&self, failure: &Failure) {
        // SAFETY: the status is copied.
        unsafe { (tensorflow().fail)(self.0, Status::of(failure).0) }
    }

    pub(super) fn inputs(&self) -> c_int {
        // SAFETY: it is a context.
        unsafe { (tensorflow().inputs)(self.0) }
    }

    pub(super) fn outputs(&self) -> c_int {
        // SAFETY: it is a context.
        unsafe { (tensorflow().outputs)(self.0) }
    }

    pub(super) fn input(&self, index: c_int) -> Result<Held, Failure> {
        let (status, mut tensor) = (Status::new(), std::ptr::null_mut());
        // SAFETY: TensorFlow checks the index.
        unsafe { (tensorflow().input)(self.0, index, &raw mut tensor, status.0) };
        status.check()?;
        // SAFETY: it is a new reference.
        Ok(unsafe { Held::new(tensor) })
    }

    /// The type of an output.
    pub(super) fn output_type(&self, index: c_int) -> c_int {
        // SAFETY: callers pass the index of an output.
        unsafe { (tensorflow().output_type)(self.0, index) }
    }

    /// A new output.
    pub(super) fn allocate(
        &self,
        index: c_int,
        data_type: c_int,
        shape: &[usize],
        bytes: usize,
    ) -> Result<Held, Failure> {
        let (status, shape) = (Status::new(), extents(shape));
        let count = c_int::try_from(shape.len()).unwrap_or(c_int::MAX);
        // SAFETY: the shape has that many extents.
        let tensor =
            unsafe { (tensorflow().allocate)(self.0, index, data_type, shape.as_ptr(), count, bytes, status.0) };
        status.check()?;
        // SAFETY: it is a new reference.
        Ok(unsafe { Held::new(tensor) })
    }

    /// An output with the elements of the input of the same index: the input's memory if nobody else uses that.
    pub(super) fn forward(&self, index: c_int) -> Result<Held, Failure> {
        // The reference must be given up, or the memory is in use.
        let shape = extents(&self.input(index)?.shape());
        let (status, mut forwarded) = (Status::new(), -1);
        let count = c_int::try_from(shape.len()).unwrap_or(c_int::MAX);
        // SAFETY: there is one candidate, and the shape has that many extents.
        let tensor = unsafe {
            let (candidates, shape) = (&raw const index, shape.as_ptr());
            (tensorflow().forward)(self.0, candidates, 1, index, shape, count, &raw mut forwarded, status.0)
        };
        status.check()?;
        // SAFETY: it is a new reference.
        let mut tensor = unsafe { Held::new(tensor) };
        if forwarded < 0 {
            let input = self.input(index)?;
            tensor.bytes_mut().copy_from_slice(input.bytes());
        }
        Ok(tensor)
    }

    /// Makes a tensor an output.
    pub(super) fn set_output(&self, index: c_int, tensor: &Held) -> Result<(), Failure> {
        let status = Status::new();
        // SAFETY: TensorFlow checks the index and takes a reference of its own.
        unsafe { (tensorflow().set_output)(self.0, index, tensor.pointer(), status.0) };
        status.check()
    }

    /// Makes numbers an output: of 64 bits, with a dimension unless it is a single one that needs none.
    pub(super) fn set_integers(&self, index: c_int, numbers: &[i64], shape: &[usize]) -> Result<(), Failure> {
        let mut output = self.allocate(index, super::tensor::INT64, shape, size_of_val(numbers))?;
        for (to, from) in output.bytes_mut().chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        Ok(())
    }
}

fn extents(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&extent| i64::try_from(extent).unwrap_or(i64::MAX)).collect()
}
