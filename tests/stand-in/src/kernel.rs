//! Kernels, recognised by their names: copies, and reductions without factors or with those of floating-point numbers. The
//! text of a module is not looked at. They exist only with `STAND_IN_KERNELS=1`, so that tests can choose whether a
//! driver takes them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::{
    number::{Operation, Type, reduce},
    setting,
    status::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, give},
    stream,
};

/// The handle of the first kernel; the others follow.
const FIRST: usize = 0xf000;
/// The last one stands for all others: it may be loaded, but not launched.
const NAMES: [&str; 11] = [
    "copy_segments",
    "combine_f32",
    "combine_f64",
    "combine_f16",
    "combine_bf16",
    "combine_i8",
    "combine_u8",
    "combine_i32",
    "combine_i64",
    "combine_bool",
    "",
];

#[repr(C)]
#[derive(Clone, Copy)]
struct Factor {
    kind: u32,
    unused: u32,
    bits: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CombineSegment {
    out: u64,
    offset: u32,
    count: u32,
    first_tile: u32,
    aligned: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CombineJob {
    inputs: [u64; 64],
    segments: [CombineSegment; 128],
    input_count: u32,
    segment_count: u32,
    tiles: u32,
    op: u32,
    before: Factor,
    after: Factor,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CopySegment {
    to: u64,
    from: u64,
    bytes: u32,
    first_tile: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CopyJob {
    segments: [CopySegment; 160],
    segment_count: u32,
    tiles: u32,
}

impl Factor {
    /// The factor as an element of this type, if there is one.
    fn element(self, dtype: Type) -> Option<[u8; 8]> {
        let (real, mut bytes) = (f64::from_bits(self.bits), [0; 8]);
        match dtype {
            _ if self.kind == 0 => return None,
            Type::F32 => bytes[..4].copy_from_slice(&(real as f32).to_ne_bytes()),
            Type::F16 => bytes[..2].copy_from_slice(&half::f16::from_f64(real).to_ne_bytes()),
            Type::BF16 => bytes[..2].copy_from_slice(&half::bf16::from_f64(real).to_ne_bytes()),
            _ => bytes = real.to_ne_bytes(),
        }
        Some(bytes)
    }
}

impl CombineJob {
    /// Carries it out.
    ///
    /// # Safety
    /// Its addresses must be those of memory that may be used now.
    unsafe fn work(&self, dtype: Type) {
        for segment in &self.segments[..self.segment_count as usize] {
            let bytes = segment.count as usize * dtype.size();
            let begins = self.inputs[..self.input_count as usize].iter().map(|input| input + u64::from(segment.offset));
            // SAFETY: the caller's promise.
            let inputs = begins.map(|at| unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }.to_vec());
            let inputs: Vec<Vec<u8>> = inputs.collect();
            let views: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let plain = [Operation::Sum, Operation::Product, Operation::Min, Operation::Max][self.op as usize & 3];
            let mut out = vec![0; bytes];
            reduce(dtype, self.before.element(dtype).map_or(plain, Operation::Scaled), &views, &mut out);
            if let Some(factor) = self.after.element(dtype) {
                let sum = out.clone();
                reduce(dtype, Operation::Scaled(factor), &[&sum], &mut out);
            }
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(segment.out as *mut u8, bytes) }.copy_from_slice(&out);
        }
    }
}

fn dtype(name: &str) -> Option<Type> {
    Some(match name.strip_prefix("combine_")? {
        "f32" => Type::F32,
        "f64" => Type::F64,
        "f16" => Type::F16,
        "bf16" => Type::BF16,
        "i8" => Type::I8,
        "u8" | "bool" => Type::U8,
        "i32" => Type::I32,
        "i64" => Type::I64,
        _ => return None,
    })
}

#[unsafe(export_name = "cuModuleLoadData")]
unsafe extern "C" fn module_load(to: *mut usize, _: *const c_char) -> c_int {
    match setting("STAND_IN_KERNELS") {
        // SAFETY: the caller wants a handle there.
        Some(1) => unsafe { give(to, FIRST) },
        _ => NOT_SUPPORTED,
    }
}

#[unsafe(export_name = "cuModuleGetFunction")]
unsafe extern "C" fn module_function(to: *mut usize, _: usize, name: *const c_char) -> c_int {
    // SAFETY: the caller gives a text.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let kernel = NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len() - 1);
    // SAFETY: the caller wants a handle there.
    unsafe { give(to, FIRST + kernel) }
}

#[unsafe(export_name = "cuLaunchKernel")]
#[allow(clippy::too_many_arguments, reason = "the driver's function has so many")]
unsafe extern "C" fn launch(
    kernel: usize,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    queue: usize,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    let Some(name) = kernel.checked_sub(FIRST).and_then(|kernel| NAMES.get(kernel)) else { return INVALID_HANDLE };
    let Some(stream) = stream::find(queue) else { return INVALID_HANDLE };
    if parameters.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: every kernel has at least one parameter.
    let first = unsafe { *parameters };
    match (*name, dtype(name)) {
        ("copy_segments", _) => {
            // SAFETY: that is the parameter of this kernel.
            let job = unsafe { *first.cast::<CopyJob>() };
            stream.push(move || {
                for CopySegment { to, from, bytes, .. } in &job.segments[..job.segment_count as usize] {
                    // SAFETY: the caller keeps both alive until the stream is past this.
                    unsafe { (*from as *const u8).copy_to(*to as *mut u8, *bytes as usize) };
                }
            });
            SUCCESS
        }
        (_, Some(dtype)) => {
            // SAFETY: that is the parameter of these kernels.
            let job = unsafe { *first.cast::<CombineJob>() };
            // SAFETY: the caller keeps everything alive until the stream is past this.
            stream.push(move || unsafe { job.work(dtype) });
            SUCCESS
        }
        _ => NOT_SUPPORTED,
    }
}
