//! The functions of ONNX Runtime that are used here.
//!
//! The library gives out one table of functions, to which every version appends and of which none ever changes. A
//! function is therefore known by its place in the table.

use std::ffi::{c_char, c_int, c_void};

/// Something of the library's own, seen only by its address.
pub(super) type Object = *mut c_void;
/// Nothing, or what went wrong.
pub(super) type Status = *mut c_void;

/// Lets the models of some options compute on the GPU of this number. Not in the table, but exported under its own name by
/// those builds that have it.
pub(super) type UseCuda = unsafe extern "C" fn(Object, c_int) -> Status;

/// The version of the table that has all of these functions, which is that of ONNX Runtime 1.8.
pub(super) const VERSION: u32 = 8;

/// What the library gives out first.
#[repr(C)]
pub(super) struct Base {
    pub(super) table: unsafe extern "C" fn(u32) -> *const *const c_void,
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
}

macro_rules! table {
    ($($field:ident = $place:literal: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// # Safety
            /// `table` must be what the library gave out for [`VERSION`].
            pub(super) unsafe fn new(table: *const *const c_void) -> Self {
                Self {
                    $($field: {
                        // SAFETY: the caller's promise; the place and the type are those of the library's header.
                        unsafe {
                            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                *table.add($place),
                            )
                        }
                    },)*
                }
            }
        }
    };
}

table! {
    error_message = 2: fn(Status) -> *const c_char;
    create_env = 3: fn(c_int, *const c_char, *mut Object) -> Status;
    create_session = 7: fn(Object, *const c_char, Object, *mut Object) -> Status;
    create_session_of_bytes = 8: fn(Object, *const c_void, usize, Object, *mut Object) -> Status;
    run = 9: fn(
        Object, Object, *const *const c_char, *const Object, usize, *const *const c_char, usize, *mut Object,
    ) -> Status;
    create_options = 10: fn(*mut Object) -> Status;
    disable_memory_pattern = 17: fn(Object) -> Status;
    set_log_severity = 22: fn(Object, c_int) -> Status;
    set_threads_within = 24: fn(Object, c_int) -> Status;
    set_threads_between = 25: fn(Object, c_int) -> Status;
    create_tensor = 49: fn(Object, *mut c_void, usize, *const i64, usize, c_int, *mut Object) -> Status;
    tensor_data = 51: fn(Object, *mut *mut c_void) -> Status;
    element_type = 60: fn(Object, *mut c_int) -> Status;
    axes = 61: fn(Object, *mut usize) -> Status;
    sizes = 62: fn(Object, *mut i64, usize) -> Status;
    shape_of = 65: fn(Object, *mut Object) -> Status;
    create_memory_info = 69: fn(c_int, c_int, *mut Object) -> Status;
    release_env = 92: fn(Object);
    release_status = 93: fn(Status);
    release_memory_info = 94: fn(Object);
    release_session = 95: fn(Object);
    release_value = 96: fn(Object);
    release_shape = 99: fn(Object);
    release_options = 100: fn(Object);
}
