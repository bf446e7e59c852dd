//! The functions of HDF5's library that are used here.
//!
//! They are those whose names and arguments are the same from 1.10 to 2.x; where a function was replaced, both names are
//! tried. No variable of the library is used: the usual `H5T_NATIVE_FLOAT` and the like are macros over variables, and a
//! copy of the file's own type in this machine's byte order serves as well.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::Library;

/// Something that is open in the library. 64 bits since 1.10, 32 before.
pub(super) type Id = i64;

/// One line of what went wrong.
#[repr(C)]
pub(super) struct ErrorLine {
    class: Id,
    major: Id,
    minor: Id,
    line: c_uint,
    function: *const c_char,
    file: *const c_char,
    pub(super) text: *const c_char,
}

/// Is given the lines of what went wrong, one by one.
pub(super) type Walker = unsafe extern "C" fn(c_uint, *const ErrorLine, *mut c_void) -> c_int;

/// Tells which object this is: since 1.12, and before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identify {
    Token(unsafe extern "C" fn(Id, *mut c_void, c_uint) -> c_int),
    Address(unsafe extern "C" fn(Id, *mut c_void) -> c_int),
}

macro_rules! functions {
    ($($field:ident = $name:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            pub(super) identify: Option<Identify>,
        }

        impl Api {
            /// Finds all of them.
            ///
            /// # Safety
            /// The library must be HDF5's, of version 1.10 or later.
            pub(super) unsafe fn bind(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's promise; names and types are those of the library's headers.
                unsafe {
                    Ok(Self {
                        $($field: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        identify: identify(library),
                    })
                }
            }
        }
    };
}

/// # Safety
/// As for [`Api::bind`].
unsafe fn identify(library: &Library) -> Option<Identify> {
    // SAFETY: the caller's promise; names and types are those of the library's headers.
    unsafe {
        if let Ok(function) = library.get(b"H5Oget_info3\0") {
            return Some(Identify::Token(*function));
        }
        let old = library.get(b"H5Oget_info1\0").or_else(|_| library.get(b"H5Oget_info\0"));
        old.ok().map(|function| Identify::Address(*function))
    }
}

functions! {
    initialise = H5open() -> c_int;
    set_printing = H5Eset_auto2(Id, *mut c_void, *mut c_void) -> c_int;
    walk_errors = H5Ewalk2(Id, c_int, Walker, *mut c_void) -> c_int;
    release = H5Idec_ref(Id) -> c_int;
    kind = H5Iget_type(Id) -> c_int;
    open_file = H5Fopen(*const c_char, c_uint, Id) -> Id;
    open_object = H5Oopen(Id, *const c_char, Id) -> Id;
    group = H5Gget_info(Id, *mut c_void) -> c_int;
    link_name = H5Lget_name_by_idx(Id, *const c_char, c_int, c_int, u64, *mut c_char, usize, Id) -> isize;
    dataset_space = H5Dget_space(Id) -> Id;
    dataset_type = H5Dget_type(Id) -> Id;
    dataset_properties = H5Dget_create_plist(Id) -> Id;
    read_dataset = H5Dread(Id, Id, Id, Id, Id, *mut c_void) -> c_int;
    attribute_exists = H5Aexists(Id, *const c_char) -> c_int;
    open_attribute = H5Aopen(Id, *const c_char, Id) -> Id;
    attribute_space = H5Aget_space(Id) -> Id;
    attribute_type = H5Aget_type(Id) -> Id;
    read_attribute = H5Aread(Id, Id, *mut c_void) -> c_int;
    axes = H5Sget_simple_extent_ndims(Id) -> c_int;
    sizes = H5Sget_simple_extent_dims(Id, *mut u64, *mut u64) -> c_int;
    create_space = H5Screate_simple(c_int, *const u64, *const u64) -> Id;
    select = H5Sselect_hyperslab(Id, c_int, *const u64, *const u64, *const u64, *const u64) -> c_int;
    type_class = H5Tget_class(Id) -> c_int;
    type_size = H5Tget_size(Id) -> usize;
    type_sign = H5Tget_sign(Id) -> c_int;
    type_fields = H5Tget_fields(Id, *mut usize, *mut usize, *mut usize, *mut usize, *mut usize) -> c_int;
    type_value = H5Tenum_valueof(Id, *const c_char, *mut c_void) -> c_int;
    copy_type = H5Tcopy(Id) -> Id;
    set_order = H5Tset_order(Id, c_int) -> c_int;
    set_precision = H5Tset_precision(Id, usize) -> c_int;
    chunk = H5Pget_chunk(Id, c_int, *mut u64) -> c_int;
    storage = H5Pget_layout(Id) -> c_int;
    filters = H5Pget_nfilters(Id) -> c_int;
    filter = H5Pget_filter2(
        Id, c_uint, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint,
    ) -> c_int;
    has_filter = H5Zfilter_avail(c_int) -> c_int;
}
