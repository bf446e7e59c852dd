//! One loaded model: what of the library's interface is safe to call.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr::null_mut,
};

use super::api::{Api, Object, Status, UseCuda};
use crate::InferError;

/// The library's number of single precision.
const FLOAT: c_int = 1;
/// Only errors are worth a line on standard error.
const ERRORS: c_int = 3;
/// Memory that the caller owns, and of the ordinary kind.
const DEVICE_ALLOCATOR: c_int = 0;
const DEFAULT_MEMORY: c_int = 0;

/// What receives the shape and the values of a result.
type Received<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), InferError> + 'a;

/// A model in the library's memory.
#[derive(Debug)]
pub(super) struct Session {
    api: Api,
    path: PathBuf,
    input: CString,
    output: CString,
    // Released in this order.
    session: Owned,
    memory: Owned,
    _environment: Owned,
}

/// An object of the library, released when it goes.
#[derive(Debug)]
struct Owned {
    object: Object,
    release: unsafe extern "C" fn(Object),
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.object.is_null() {
            // SAFETY: the object is of the kind that this function releases, and nobody uses it afterwards.
            unsafe { (self.release)(self.object) }
        }
    }
}

// SAFETY: none of these objects belongs to the thread that made it.
unsafe impl Send for Owned {}

impl Session {
    /// Loads a file, or what it has become in memory. `names` are those of the input and of the output that is wanted. It
    /// computes with so many threads, or on a GPU.
    pub(super) fn open(
        api: Api,
        (path, changed): (&Path, Option<&[u8]>),
        names: (String, String),
        (threads, gpu): (usize, Option<(UseCuda, u32)>),
    ) -> Result<Self, InferError> {
        let fails = |problem: String| InferError::Model { path: path.to_owned(), problem };
        let text = |name: String| CString::new(name).map_err(|_| fails("a name contains a zero".to_owned()));
        let (input, output) = (text(names.0)?, text(names.1)?);
        let file =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| fails("the path contains a zero".to_owned()))?;
        let threads = c_int::try_from(threads.max(1)).unwrap_or(1);
        let call = |status: Status| check(&api, status).map_err(&fails);
        let mut environment = Owned { object: null_mut(), release: api.release_env };
        let mut options = Owned { object: null_mut(), release: api.release_options };
        let mut session = Owned { object: null_mut(), release: api.release_session };
        let mut memory = Owned { object: null_mut(), release: api.release_memory_info };
        // SAFETY: all functions get objects of their own kind, texts that end with zero, and places to write to.
        unsafe {
            call((api.create_env)(ERRORS, c"sirtaki".as_ptr(), &raw mut environment.object))?;
            call((api.create_options)(&raw mut options.object))?;
            call((api.set_log_severity)(options.object, ERRORS))?;
            call((api.set_threads_within)(options.object, threads))?;
            call((api.set_threads_between)(options.object, 1))?;
            // Tiles differ in size, and a plan of the memory for each of them would be kept for good.
            call((api.disable_memory_pattern)(options.object))?;
            if let Some((use_cuda, gpu)) = gpu {
                call(use_cuda(options.object, c_int::try_from(gpu).unwrap_or(c_int::MAX)))?;
            }
            call(match changed {
                Some(bytes) => (api.create_session_of_bytes)(
                    environment.object,
                    bytes.as_ptr().cast::<c_void>(),
                    bytes.len(),
                    options.object,
                    &raw mut session.object,
                ),
                None => {
                    (api.create_session)(environment.object, file.as_ptr(), options.object, &raw mut session.object)
                }
            })?;
            call((api.create_memory_info)(DEVICE_ALLOCATOR, DEFAULT_MEMORY, &raw mut memory.object))?;
        }
        Ok(Self { api, path: path.to_owned(), input, output, session, memory, _environment: environment })
    }

    /// Computes values of this shape.
    pub(super) fn run(&mut self, shape: &[u64], values: &mut [f32], out: &mut Received<'_>) -> Result<(), InferError> {
        let fails = |problem: String| InferError::Model { path: self.path.clone(), problem };
        let count = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if count != Some(values.len() as u64) {
            return Err(fails(format!("{} values are no tensor of {shape:?}", values.len())));
        }
        let api = &self.api;
        let call = |status: Status| check(api, status).map_err(fails);
        let sizes: Vec<i64> = shape.iter().map(|size| size.cast_signed()).collect();
        let mut input = Owned { object: null_mut(), release: api.release_value };
        let mut output = Owned { object: null_mut(), release: api.release_value };
        // SAFETY: the tensor borrows `values`, which outlive it here, and has exactly their size; names and objects are
        // those of this session.
        unsafe {
            call((api.create_tensor)(
                self.memory.object,
                values.as_mut_ptr().cast::<c_void>(),
                size_of_val(values),
                sizes.as_ptr(),
                sizes.len(),
                FLOAT,
                &raw mut input.object,
            ))?;
            let (names, results) = ([self.input.as_ptr()], [self.output.as_ptr()]);
            call((api.run)(
                self.session.object,
                null_mut(),
                names.as_ptr(),
                &raw const input.object,
                1,
                results.as_ptr(),
                1,
                &raw mut output.object,
            ))?;
        }
        let shape = self.shape(&output).map_err(fails)?;
        let count = shape.iter().product::<u64>() as usize;
        let mut data: *mut c_void = null_mut();
        // SAFETY: the output is a tensor of the library's own.
        unsafe { call((api.tensor_data)(output.object, &raw mut data))? };
        if data.is_null() || count == 0 {
            return out(&shape, &[]);
        }
        // SAFETY: the tensor has so many values of single precision, and lives until `output` goes.
        let values = unsafe { std::slice::from_raw_parts(data.cast::<f32>(), count) };
        out(&shape, values)
    }

    /// The shape of a tensor, which must be of single precision.
    fn shape(&self, tensor: &Owned) -> Result<Vec<u64>, String> {
        let api = &self.api;
        let mut shape = Owned { object: null_mut(), release: api.release_shape };
        let (mut kind, mut axes): (c_int, usize) = (0, 0);
        // SAFETY: the object is a tensor, and all places to write to are of the right type.
        unsafe {
            check(api, (api.shape_of)(tensor.object, &raw mut shape.object))?;
            check(api, (api.element_type)(shape.object, &raw mut kind))?;
            check(api, (api.axes)(shape.object, &raw mut axes))?;
        }
        if kind != FLOAT {
            return Err(format!("its output is not of type float (but type {kind} of ONNX); export it with logits"));
        }
        let mut sizes = vec![0_i64; axes];
        // SAFETY: there is room for as many sizes as there are axes.
        unsafe { check(api, (api.sizes)(shape.object, sizes.as_mut_ptr(), axes))? };
        sizes
            .iter()
            .map(|size| u64::try_from(*size).map_err(|_| format!("its output has the shape {sizes:?}")))
            .collect()
    }
}

/// What a function said, if it failed.
fn check(api: &Api, status: Status) -> Result<(), String> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: the status is one of the library's; its text is copied before it is released.
    unsafe {
        let text = CStr::from_ptr((api.error_message)(status)).to_string_lossy().trim().to_owned();
        (api.release_status)(status);
        Err(text)
    }
}
