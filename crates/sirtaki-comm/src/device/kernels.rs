//! Reducing, copying and filling in the memory of a GPU.
//!
//! The kernels are in `reduce.cu`. Programs carry what `cargo xtask ptx` makes of it, `reduce.ptx`: a text that every
//! driver since CUDA 11.8 compiles for its GPU, so that neither building nor running needs a toolkit. Results have the
//! same bits as those of the host's kernels, except for the payload of a NaN.
//!
//! One launch handles many tensors: its parameters hold a table of them, as long as parameters may be.

use std::{
    ffi::{CString, c_void},
    fmt,
    sync::Arc,
};

use super::{
    View,
    driver::Handle,
    gpu::{Gpu, Stream},
    job::{
        COMBINE, COMBINE_SEGMENTS, COPY_SEGMENTS, COPY_TILE_BYTES, CombineJob, CombineSegment, CopyJob, CopySegment,
        MOST_INPUTS, THREADS, TILE_BYTES, lane, op_code,
    },
};
use crate::{CommError, DType, Plan};

/// Enough to fill any GPU twice; blocks go on with the next tile.
const MOST_BLOCKS: u32 = 2048;
/// The kernels count bytes of a segment in 32 bits.
const MOST_BYTES: usize = 1 << 30;
const PTX: &str = include_str!("reduce.ptx");

/// The kernels, compiled for one GPU. They stay loaded until the process ends.
pub struct Kernels {
    gpu: Arc<Gpu>,
    combine: [Handle; COMBINE.len()],
    copy: Handle,
    fill: Handle,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernels for {:?}", self.gpu)
    }
}

impl Kernels {
    /// Most inputs of a reduction.
    pub const MOST_INPUTS: usize = MOST_INPUTS;

    /// Has the driver compile them, or reuse what it compiled earlier.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Self, CommError> {
        gpu.enter()?;
        let unusable = |_| CommError::Invalid { problem: "a kernel's text or name contains a zero byte".into() };
        let text = CString::new(PTX).map_err(unusable)?;
        let (driver, mut module) = (&gpu.driver, 0);
        // SAFETY: the text ends with a zero byte, and one handle is written.
        let code = unsafe { (driver.functions.module_load)(&raw mut module, text.as_ptr()) };
        driver.check(&format!("compile kernels for {gpu:?}"), code)?;
        let function = |name: &str| {
            let (symbol, mut function) = (CString::new(name).map_err(unusable)?, 0);
            // SAFETY: the module is loaded, the name ends with a zero byte, and one handle is written.
            let code = unsafe { (driver.functions.module_function)(&raw mut function, module, symbol.as_ptr()) };
            driver.check(&format!("find kernel {name}"), code)?;
            Ok::<Handle, CommError>(function)
        };
        let mut combine = [0; COMBINE.len()];
        for (handle, name) in combine.iter_mut().zip(COMBINE) {
            *handle = function(name)?;
        }
        Ok(Self { combine, copy: function("copy_segments")?, fill: function("fill")?, gpu: gpu.clone() })
    }

    /// The GPU for which they are compiled.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Queues `out = after · (before·inputs[0] op before·inputs[1] op …)` for each of several outputs, from left to
    /// right. The operands of an output begin at the same offset in every input: the number of bytes given beside the
    /// output. An output may be one of its own operands.
    pub fn combine(
        &self,
        plan: &Plan,
        inputs: &[View],
        outputs: &[(View, usize)],
        stream: &Stream,
    ) -> Result<(), CommError> {
        let mut addresses = [0; MOST_INPUTS];
        if inputs.is_empty() || inputs.len() > MOST_INPUTS {
            let problem = format!("a reduction of {} inputs on a GPU; 1 to {MOST_INPUTS} are possible", inputs.len());
            return Err(CommError::Invalid { problem });
        }
        addresses.iter_mut().zip(inputs).for_each(|(address, input)| *address = input.address());
        let room = inputs.iter().map(View::bytes).min().unwrap_or(0).min(u32::MAX as usize);
        for (out, offset) in outputs {
            let fits = offset.checked_add(out.bytes()).is_some_and(|end| end <= room);
            if !fits || out.dtype() != plan.dtype || !offset.is_multiple_of(plan.dtype.size()) {
                let problem =
                    format!("{out:?} cannot be reduced from {room} bytes of {} at {offset}", plan.dtype.name());
                return Err(CommError::Invalid { problem });
            }
        }
        let (kernel, sums) = lane(plan);
        let outputs: Vec<_> = outputs.iter().filter(|(out, _)| !out.is_empty()).collect();
        for outputs in outputs.chunks(COMBINE_SEGMENTS) {
            let mut job = CombineJob {
                inputs: addresses,
                segments: [CombineSegment::default(); COMBINE_SEGMENTS],
                input_count: inputs.len() as u32,
                segment_count: outputs.len() as u32,
                tiles: 0,
                op: op_code(plan.op),
                before: sums.factor(plan.before),
                after: sums.factor(plan.after),
            };
            for (segment, (out, offset)) in job.segments.iter_mut().zip(outputs) {
                let aligned = |address: u64| address.is_multiple_of(16);
                let all =
                    aligned(out.address()) && inputs.iter().all(|input| aligned(input.address() + *offset as u64));
                let (count, offset) = (out.len() as u32, *offset as u32);
                *segment = CombineSegment {
                    out: out.address(),
                    offset,
                    count,
                    first_tile: job.tiles,
                    aligned: u32::from(all),
                };
                job.tiles += out.bytes().div_ceil(TILE_BYTES as usize) as u32;
            }
            let tiles = job.tiles;
            self.launch(self.combine[kernel], tiles, &mut [(&raw mut job).cast()], stream)?;
        }
        Ok(())
    }

    /// What [`Kernels::combine`] does with a single input, in place: applies factors, and makes truth values 0 or 1.
    pub fn alone(&self, plan: &Plan, view: View, stream: &Stream) -> Result<(), CommError> {
        if !plan.scales() && plan.dtype != DType::Bool {
            return Ok(());
        }
        let most = MOST_BYTES / view.dtype().size();
        for from in (0..view.len()).step_by(most) {
            let part = view.part(from, view.len().min(from + most));
            self.combine(plan, &[part], &[(part, 0)], stream)?;
        }
        Ok(())
    }

    /// Queues copies to the first view of each pair from the second, of as many bytes, which must not overlap it.
    pub fn copy(&self, pairs: &[(View, View)], stream: &Stream) -> Result<(), CommError> {
        if let Some((to, from)) = pairs.iter().find(|(to, from)| to.bytes() != from.bytes()) {
            let problem = format!("{} bytes cannot be copied to {}", from.bytes(), to.bytes());
            return Err(CommError::Invalid { problem });
        }
        let pieces: Vec<_> = pairs.iter().flat_map(|(to, from)| copy_pieces(*to, *from)).collect();
        for pieces in pieces.chunks(COPY_SEGMENTS) {
            let segments = [CopySegment::default(); COPY_SEGMENTS];
            let mut job = CopyJob { segments, segment_count: pieces.len() as u32, tiles: 0 };
            for (segment, piece) in job.segments.iter_mut().zip(pieces) {
                *segment = CopySegment { first_tile: job.tiles, ..*piece };
                job.tiles += piece.bytes.div_ceil(COPY_TILE_BYTES);
            }
            let tiles = job.tiles;
            self.launch(self.copy, tiles, &mut [(&raw mut job).cast()], stream)?;
        }
        Ok(())
    }

    /// Queues filling a view with copies of `element`, which has as many bytes as the type.
    pub fn fill(&self, view: View, element: &[u8], stream: &Stream) -> Result<(), CommError> {
        let size = view.dtype().size();
        if element.len() != size {
            let problem = format!("{} bytes are no element of {}", element.len(), view.dtype().name());
            return Err(CommError::Invalid { problem });
        }
        let mut pattern = [0; 8];
        pattern.chunks_mut(size).for_each(|bytes| bytes.copy_from_slice(element));
        let (mut to, mut bytes, mut pattern) = (view.address(), view.bytes() as u64, u64::from_le_bytes(pattern));
        let tiles = u32::try_from(bytes.div_ceil(u64::from(TILE_BYTES))).unwrap_or(u32::MAX);
        let mut parameters = [(&raw mut to).cast(), (&raw mut bytes).cast(), (&raw mut pattern).cast()];
        self.launch(self.fill, tiles, &mut parameters, stream)
    }

    fn launch(
        &self,
        kernel: Handle,
        tiles: u32,
        parameters: &mut [*mut c_void],
        stream: &Stream,
    ) -> Result<(), CommError> {
        if tiles == 0 {
            return Ok(());
        }
        self.gpu.enter()?;
        let (blocks, driver) = (tiles.min(MOST_BLOCKS), &self.gpu.driver);
        let (queue, given) = (stream.handle(), parameters.as_mut_ptr());
        // SAFETY: the parameters have the kernel's types and are copied during the call; the memory that they name is that
        // of views, which may be read and written.
        let code = unsafe {
            (driver.functions.launch)(kernel, blocks, 1, 1, THREADS, 1, 1, 0, queue, given, std::ptr::null_mut())
        };
        driver.check("launch a kernel", code)
    }
}

/// A copy in pieces that the kernel can count.
fn copy_pieces(to: View, from: View) -> impl Iterator<Item = CopySegment> {
    let bytes = to.bytes();
    (0..bytes).step_by(MOST_BYTES).map(move |at| CopySegment {
        to: to.address() + at as u64,
        from: from.address() + at as u64,
        bytes: (bytes - at).min(MOST_BYTES) as u32,
        first_tile: 0,
    })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    const SOURCE: &str = include_str!("reduce.cu");

    #[test]
    fn the_text_was_compiled_from_the_source() {
        let digest = Sha256::digest(SOURCE).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(PTX.contains(&digest), "reduce.ptx is not what reduce.cu compiles to: run `cargo xtask ptx`");
    }

    #[test]
    fn old_drivers_and_old_gpus_take_the_text() {
        assert!(PTX.contains(".version 7.8\n.target sm_70\n"));
        for name in COMBINE.iter().chain(&["copy_segments", "fill"]) {
            assert!(PTX.contains(&format!(".visible .entry {name}(")), "{name}");
        }
        assert!(!PTX.contains("fma.") && !PTX.contains(".ftz"), "a result would differ from the host's");
        assert!(!PTX.contains(".nc."), "other processes change what is read");
    }
}
