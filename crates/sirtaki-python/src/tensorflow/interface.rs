//! The functions of TensorFlow's C interface that ops and kernels need, declared here and found in the library that the
//! process has loaded.
//!
//! So nothing of TensorFlow is needed to build, and one file serves all versions that have these functions. The only
//! file that knows their types.

use std::{
    ffi::{c_char, c_int, c_void},
    path::Path,
    sync::OnceLock,
};

use libloading::Library;

/// Something of TensorFlow's behind a pointer.
pub(super) type Pointer = *mut c_void;

/// Makes a kernel from its attributes.
pub(super) type Create = unsafe extern "C" fn(Pointer) -> Pointer;
/// Runs a kernel.
pub(super) type Compute = unsafe extern "C" fn(Pointer, Pointer);
/// Runs a kernel, which calls its last argument in the end.
pub(super) type ComputeAsync = unsafe extern "C" fn(Pointer, Pointer, Pointer);
/// Frees a kernel.
pub(super) type Delete = unsafe extern "C" fn(Pointer);
/// Finds the shapes of outputs.
pub(super) type Infer = unsafe extern "C" fn(Pointer, Pointer);

/// What kernels need that return before they are done. TensorFlow 2.12 has none.
pub(super) struct Asynchronous {
    pub(super) new_kernel: NewAsyncKernel,
    pub(super) run_done: unsafe extern "C" fn(Pointer),
}

type NewAsyncKernel =
    unsafe extern "C" fn(*const c_char, *const c_char, Option<Create>, ComputeAsync, Option<Delete>) -> Pointer;

impl Asynchronous {
    /// # Safety
    /// The library must be TensorFlow's.
    unsafe fn bind(library: &Library) -> Option<Self> {
        // SAFETY: the caller's promise; the types are those of TensorFlow's headers.
        unsafe {
            let new_kernel = *library.get(b"TF_NewAsyncKernelBuilder\0").ok()?;
            Some(Self { new_kernel, run_done: *library.get(b"TF_RunAsyncOpKernelDoneCallback\0").ok()? })
        }
    }
}

/// Declares the table of functions, and how to fill it from a library.
macro_rules! interface {
    ($($field:ident: $symbol:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of TensorFlow's, by their names without the prefix.
        pub(super) struct Interface {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            pub(super) asynchronous: Option<Asynchronous>,
        }

        impl Interface {
            /// The functions of a library; an error names the first one that is missing.
            ///
            /// # Safety
            /// The library must be TensorFlow's.
            unsafe fn bind(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's promise; the types are those of TensorFlow's headers.
                unsafe {
                    Ok(Self {
                        $($field: *library.get(concat!(stringify!($symbol), "\0").as_bytes())?,)*
                        asynchronous: Asynchronous::bind(library),
                    })
                }
            }
        }
    };
}

interface! {
    new_status: TF_NewStatus() -> Pointer;
    delete_status: TF_DeleteStatus(Pointer);
    set_status: TF_SetStatus(Pointer, c_int, *const c_char);
    code: TF_GetCode(Pointer) -> c_int;
    message: TF_Message(Pointer) -> *const c_char;
    new_op: TF_NewOpDefinitionBuilder(*const c_char) -> Pointer;
    add_attribute: TF_OpDefinitionBuilderAddAttr(Pointer, *const c_char);
    add_input: TF_OpDefinitionBuilderAddInput(Pointer, *const c_char);
    add_output: TF_OpDefinitionBuilderAddOutput(Pointer, *const c_char);
    set_stateful: TF_OpDefinitionBuilderSetIsStateful(Pointer, bool);
    set_inference: TF_OpDefinitionBuilderSetShapeInferenceFunction(Pointer, Infer);
    register_op: TF_RegisterOpDefinition(Pointer, Pointer);
    new_shape: TF_NewShapeHandle() -> Pointer;
    delete_shape: TF_DeleteShapeHandle(Pointer);
    shape_inputs: TF_ShapeInferenceContextNumInputs(Pointer) -> i64;
    input_shape: TF_ShapeInferenceContextGetInput(Pointer, c_int, Pointer, Pointer);
    set_shape: TF_ShapeInferenceContextSetOutput(Pointer, c_int, Pointer, Pointer);
    scalar_shape: TF_ShapeInferenceContextScalar(Pointer) -> Pointer;
    unknown_shapes: TF_ShapeInferenceContextSetUnknownShape(Pointer, Pointer);
    new_kernel: TF_NewKernelBuilder(*const c_char, *const c_char, Option<Create>, Compute, Option<Delete>) -> Pointer;
    in_host_memory: TF_KernelBuilder_HostMemory(Pointer, *const c_char);
    register_kernel: TF_RegisterKernelBuilder(*const c_char, Pointer, Pointer);
    attribute_size: TF_OpKernelConstruction_GetAttrSize(Pointer, *const c_char, *mut i32, *mut i32, Pointer);
    attribute_text: TF_OpKernelConstruction_GetAttrString(Pointer, *const c_char, *mut c_char, usize, Pointer);
    fail_construction: TF_OpKernelConstruction_Failure(Pointer, Pointer);
    fail: TF_OpKernelContext_Failure(Pointer, Pointer);
    inputs: TF_NumInputs(Pointer) -> c_int;
    outputs: TF_NumOutputs(Pointer) -> c_int;
    input: TF_GetInput(Pointer, c_int, *mut Pointer, Pointer);
    set_output: TF_SetOutput(Pointer, c_int, Pointer, Pointer);
    output_type: TF_ExpectedOutputDataType(Pointer, c_int) -> c_int;
    allocate: TF_AllocateOutput(Pointer, c_int, c_int, *const i64, c_int, usize, Pointer) -> Pointer;
    forward: TF_ForwardInputOrAllocateOutput(
        Pointer, *const c_int, c_int, c_int, *const i64, c_int, *mut c_int, Pointer
    ) -> Pointer;
    delete_tensor: TF_DeleteTensor(Pointer);
    data: TF_TensorData(Pointer) -> Pointer;
    bytes: TF_TensorByteSize(Pointer) -> usize;
    data_type: TF_TensorType(Pointer) -> c_int;
    dimensions: TF_NumDims(Pointer) -> c_int;
    extent: TF_Dim(Pointer, c_int) -> i64;
}

static INTERFACE: OnceLock<Interface> = OnceLock::new();

/// Finds the functions in the library at `path`, which the process has loaded. It stays loaded.
pub(super) fn load(path: &Path) -> Result<(), libloading::Error> {
    if INTERFACE.get().is_none() {
        // SAFETY: it is loaded already, so no initialisers run.
        let library = unsafe { Library::new(path) }?;
        // SAFETY: Python passes the path that TensorFlow gives for itself.
        let found = unsafe { Interface::bind(Box::leak(Box::new(library))) }?;
        let _ = INTERFACE.set(found);
    }
    Ok(())
}

/// Calls what an asynchronous kernel was given to call; there is none without these functions.
///
/// # Safety
/// `done` is what TensorFlow passes to such a kernel, or has the same layout.
pub(super) unsafe fn run_done(done: Pointer) {
    if let Some(asynchronous) = &tensorflow().asynchronous {
        // SAFETY: the caller's promise.
        unsafe { (asynchronous.run_done)(done) }
    }
}

/// The functions. Nothing here is called before they were loaded, because nothing is registered before.
pub(super) fn tensorflow() -> &'static Interface {
    INTERFACE.get().unwrap_or_else(|| std::process::abort())
}
