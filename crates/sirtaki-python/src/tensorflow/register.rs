//! The ops, as TensorFlow gets to know them.

use std::ffi::{CStr, c_char};

use crate::tensorflow::{
    FAILURE,
    call::Call,
    context::{Context, Failure, Status},
    interface::{Compute, ComputeAsync, Create, Infer, Pointer, tensorflow},
    kernels, later,
};

/// The types of elements that can move between ranks; which of them can be reduced, Python checks.
const TYPES: &str = "{half, bfloat16, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, \
                     complex64, complex128}";

/// An op and its kernel.
struct Op {
    name: &'static CStr,
    attributes: &'static [&'static str],
    inputs: &'static [&'static CStr],
    outputs: &'static [&'static CStr],
    /// The names of inputs and outputs.
    arguments: &'static [&'static CStr],
    infer: Infer,
    create: Option<Create>,
    compute: How,
}

/// How a kernel runs.
enum How {
    Until(Compute),
    /// Asynchronously where TensorFlow can do that, otherwise as the second.
    Later(ComputeAsync, Compute),
}

const OPS: [Op; 7] = [
    Op {
        name: c"SirtakiStart",
        attributes: &["T: list(TYPES) >= 1", "call: string"],
        inputs: &[c"tensors: T"],
        outputs: &[c"buffers: T", c"ticket: int64"],
        arguments: &[c"tensors", c"buffers", c"ticket"],
        infer: same_and_scalar,
        create: Some(create_call),
        compute: How::Until(start),
    },
    Op {
        name: c"SirtakiFinish",
        attributes: &["T: list(TYPES) >= 1", "N: int >= 1"],
        inputs: &[c"buffers: T", c"tickets: N * int64"],
        outputs: &[c"results: T"],
        arguments: &[c"buffers", c"tickets", c"results"],
        infer: same,
        create: None,
        compute: How::Until(finish),
    },
    Op {
        name: c"SirtakiStartNew",
        attributes: &["T: list(TYPES) >= 0", "call: string"],
        inputs: &[c"tensors: T", c"splits: int64"],
        outputs: &[c"ticket: int64"],
        arguments: &[c"tensors", c"splits", c"ticket"],
        infer: scalar,
        create: Some(create_call),
        compute: How::Until(start_new),
    },
    Op {
        name: c"SirtakiFinishNew",
        attributes: &["T: list(TYPES) >= 0"],
        inputs: &[c"ticket: int64"],
        outputs: &[c"results: T", c"counts: int64"],
        arguments: &[c"ticket", c"results", c"counts"],
        infer: unknown,
        create: None,
        compute: How::Until(finish_new),
    },
    Op {
        name: c"SirtakiFinishLater",
        attributes: &["T: list(TYPES) >= 1", "N: int >= 1"],
        inputs: &[c"buffers: T", c"tickets: N * int64"],
        outputs: &[c"results: T"],
        arguments: &[c"buffers", c"tickets", c"results"],
        infer: same,
        create: None,
        compute: How::Later(later::finish, finish),
    },
    Op {
        name: c"SirtakiFinishNewLater",
        attributes: &["T: list(TYPES) >= 0"],
        inputs: &[c"ticket: int64"],
        outputs: &[c"results: T", c"counts: int64"],
        arguments: &[c"ticket", c"results", c"counts"],
        infer: unknown,
        create: None,
        compute: How::Later(later::finish_new, finish_new),
    },
    Op {
        name: c"SirtakiPlace",
        attributes: &["call: string"],
        inputs: &[],
        outputs: &[c"place: int32"],
        arguments: &[c"place"],
        infer: scalar,
        create: Some(create_text),
        compute: How::Until(place),
    },
];

/// Registers all ops, once.
pub(super) extern "C" fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if let Err(failure) = OPS.iter().try_for_each(Op::register) {
            let text = format!("TensorFlow does not accept Sirtaki's ops: {}", failure.into_text());
            *FAILURE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(text);
        }
    });
}

impl Op {
    fn register(&self) -> Result<(), Failure> {
        let (tensorflow, status) = (tensorflow(), Status::new());
        // SAFETY: texts are copied, and registering consumes the builder.
        unsafe {
            let builder = (tensorflow.new_op)(self.name.as_ptr());
            for attribute in self.attributes {
                let text = format!("{}\0", attribute.replace("TYPES", TYPES));
                (tensorflow.add_attribute)(builder, text.as_ptr().cast());
            }
            self.inputs.iter().for_each(|input| (tensorflow.add_input)(builder, input.as_ptr()));
            self.outputs.iter().for_each(|output| (tensorflow.add_output)(builder, output.as_ptr()));
            (tensorflow.set_stateful)(builder, true);
            (tensorflow.set_inference)(builder, self.infer);
            (tensorflow.register_op)(builder, status.pointer());
        }
        status.check()?;
        [c"CPU", c"GPU"].into_iter().try_for_each(|device| self.register_kernel(device))
    }

    fn register_kernel(&self, device: &CStr) -> Result<(), Failure> {
        let (tensorflow, status) = (tensorflow(), Status::new());
        let delete = self.create.map(|_| delete_kernel as _);
        let (name, device_name) = (self.name.as_ptr(), device.as_ptr());
        // SAFETY: texts are copied, the functions live for ever, and registering consumes the builder.
        unsafe {
            let builder = match (&self.compute, &tensorflow.asynchronous) {
                (How::Later(compute, _), Some(kernels)) => {
                    (kernels.new_kernel)(name, device_name, self.create, *compute, delete)
                }
                (How::Until(compute) | How::Later(_, compute), _) => {
                    (tensorflow.new_kernel)(name, device_name, self.create, *compute, delete)
                }
            };
            if device != c"CPU" {
                // Wherever the rest of the graph computes, the engine gets what lies in the host's memory.
                self.arguments.iter().for_each(|name| (tensorflow.in_host_memory)(builder, name.as_ptr()));
            }
            (tensorflow.register_kernel)(name, builder, status.pointer());
        }
        status.check()
    }
}

/// What a kernel keeps of its attribute.
enum Kernel {
    Call(Call),
    Text(String),
}

unsafe extern "C" fn create_call(construction: Pointer) -> Pointer {
    create(construction, |text| text.parse().map(Kernel::Call).map_err(Failure::invalid))
}

unsafe extern "C" fn create_text(construction: Pointer) -> Pointer {
    create(construction, |text| Ok(Kernel::Text(text.into())))
}

fn create(construction: Pointer, parse: impl FnOnce(&str) -> Result<Kernel, Failure>) -> Pointer {
    let kernel = attribute(construction).and_then(|text| parse(&text)).unwrap_or_else(|failure| {
        let status = Status::of(&failure);
        // SAFETY: the status is copied; a kernel that failed here is not run.
        unsafe { (tensorflow().fail_construction)(construction, status.pointer()) };
        Kernel::Text(String::new())
    });
    Box::into_raw(Box::new(kernel)).cast()
}

/// The attribute `call`. TensorFlow's texts have no final zero, so their size is asked for first.
fn attribute(construction: Pointer) -> Result<String, Failure> {
    let (tensorflow, status, name) = (tensorflow(), Status::new(), c"call".as_ptr());
    let (mut elements, mut bytes) = (0, 0);
    // SAFETY: both numbers are written.
    unsafe {
        (tensorflow.attribute_size)(construction, name, &raw mut elements, &raw mut bytes, status.pointer());
    }
    status.check()?;
    let mut text = vec![0_u8; usize::try_from(bytes).unwrap_or(0)];
    let start = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: there is room for that many bytes.
    unsafe { (tensorflow.attribute_text)(construction, name, start, text.len(), status.pointer()) };
    status.check()?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

unsafe extern "C" fn delete_kernel(kernel: Pointer) {
    // SAFETY: made by `create`, and TensorFlow calls this once.
    drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
}

/// Runs a kernel, and tells TensorFlow if that fails.
pub(super) fn run(context: Pointer, compute: impl FnOnce(&Context) -> Result<(), Failure>) {
    // SAFETY: TensorFlow passes it to the kernel that calls this.
    let context = unsafe { Context::new(context) };
    if let Err(failure) = compute(&context) {
        context.fail(&failure);
    }
}

fn run_call(kernel: Pointer, context: Pointer, compute: impl FnOnce(&Call, &Context) -> Result<(), Failure>) {
    // SAFETY: made by `create`, and not deleted while it runs.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    run(context, |context| match kernel {
        Kernel::Call(call) => compute(call, context),
        Kernel::Text(_) => Err(Failure::invalid("this kernel was not made")),
    });
}

unsafe extern "C" fn start(kernel: Pointer, context: Pointer) {
    run_call(kernel, context, kernels::start);
}

unsafe extern "C" fn finish(_: Pointer, context: Pointer) {
    run(context, kernels::finish);
}

unsafe extern "C" fn start_new(kernel: Pointer, context: Pointer) {
    run_call(kernel, context, kernels::start_new);
}

unsafe extern "C" fn finish_new(_: Pointer, context: Pointer) {
    run(context, kernels::finish_new);
}

unsafe extern "C" fn place(kernel: Pointer, context: Pointer) {
    // SAFETY: made by `create`, and not deleted while it runs.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    let Kernel::Text(what) = kernel else { return };
    run(context, |context| kernels::place(what, context));
}

/// Outputs have the shapes of the inputs of the same number.
unsafe extern "C" fn same(context: Pointer, status: Pointer) {
    infer_same(context, status);
}

fn infer_same(context: Pointer, status: Pointer) -> i32 {
    let tensorflow = tensorflow();
    // SAFETY: TensorFlow passes both to a function that infers shapes, and checks indices.
    unsafe {
        let count = i32::try_from((tensorflow.shape_inputs)(context)).unwrap_or(0);
        let probe = (tensorflow.new_shape)();
        let mut index = 0;
        while index < count {
            (tensorflow.input_shape)(context, index, probe, status);
            (tensorflow.set_shape)(context, index, probe, status);
            if (tensorflow.code)(status) != 0 {
                // There are more inputs than outputs.
                (tensorflow.set_status)(status, 0, c"".as_ptr());
                break;
            }
            index += 1;
        }
        (tensorflow.delete_shape)(probe);
        count
    }
}

/// As [`same`], and one more output that is a single number.
unsafe extern "C" fn same_and_scalar(context: Pointer, status: Pointer) {
    let index = infer_same(context, status);
    infer_scalar(context, index, status);
}

fn infer_scalar(context: Pointer, index: i32, status: Pointer) {
    let tensorflow = tensorflow();
    // SAFETY: as above.
    unsafe {
        let scalar = (tensorflow.scalar_shape)(context);
        (tensorflow.set_shape)(context, index, scalar, status);
        (tensorflow.delete_shape)(scalar);
    }
}

/// One output, a single number.
unsafe extern "C" fn scalar(context: Pointer, status: Pointer) {
    infer_scalar(context, 0, status);
}

/// Shapes depend on other ranks.
unsafe extern "C" fn unknown(context: Pointer, status: Pointer) {
    // SAFETY: as above.
    unsafe { (tensorflow().unknown_shapes)(context, status) }
}
