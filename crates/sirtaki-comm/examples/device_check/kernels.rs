//! Kernels against the host's, for every type, operation and kind of factor.

use std::{sync::Arc, time::Instant};

use sirtaki_comm::{
    DType, Plan, ReduceOp, Reduction,
    device::{DeviceMemory, Gpu, Kernels, PinnedMemory, Stream, View},
    kernel,
};

use crate::{
    Outcome, finish,
    values::{Values, difference},
};

/// Bytes of each input.
const ROOM: usize = 1 << 18;
const FACTORS: [(f64, f64); 9] = [
    (1.0, 1.0),
    (0.5, 1.0),
    (1.0, 0.1),
    (3.0, 1.0 / 3.0),
    (-2.0, 0.3),
    (1e9, 1e-9),
    (1e-300, 1e200),
    (0.0, f64::NAN),
    (1e30, f64::INFINITY),
];
/// Elements, and by how many elements inputs and outputs begin after a multiple of 16 bytes.
const SHAPES: [(usize, usize, usize); 7] =
    [(1, 0, 0), (7, 0, 0), (4099, 0, 0), (2048, 0, 1), (5000, 3, 3), (777, 1, 0), (30_011, 0, 0)];

struct Bench {
    kernels: Kernels,
    stream: Stream,
    inputs: Vec<DeviceMemory>,
    out: DeviceMemory,
    host: PinnedMemory,
}

pub(crate) fn check(gpu: &Arc<Gpu>) -> Outcome {
    let start = Instant::now();
    let kernels = Kernels::load(gpu)?;
    println!("kernels loaded in {:.2} s", start.elapsed().as_secs_f64());
    let inputs = (0..Kernels::MOST_INPUTS).map(|_| DeviceMemory::new(gpu, ROOM)).collect::<Result<_, _>>()?;
    let (out, host) = (DeviceMemory::new(gpu, ROOM)?, PinnedMemory::new(gpu, ROOM)?);
    let mut bench = Bench { kernels, stream: gpu.stream(false)?, inputs, out, host };
    let (mut count, mut wrong) = (0, 0);
    for dtype in DType::ALL {
        for any in [false, true] {
            for inputs in [1, 2, 3, 8, 9, Kernels::MOST_INPUTS] {
                bench.reductions(dtype, any, inputs, &mut count, &mut wrong)?;
            }
        }
    }
    println!("{count} reductions compared with the host's, {wrong} differ");
    bench.copies()?;
    bench.fills()?;
    if wrong > 0 {
        return Err("kernels give other results than the host".into());
    }
    drop(bench);
    speed(gpu)
}

impl Bench {
    fn upload(&mut self, to: View, bytes: &[u8]) -> Outcome {
        self.host[..bytes.len()].copy_from_slice(bytes);
        self.host.copy_to(0, to, &self.stream)?;
        finish(&self.stream)
    }

    fn download(&mut self, from: View) -> Outcome<Vec<u8>> {
        self.host.copy_from(0, from, &self.stream)?;
        finish(&self.stream)?;
        Ok(self.host[..from.bytes()].to_vec())
    }

    fn reductions(&mut self, dtype: DType, any: bool, inputs: usize, count: &mut u32, wrong: &mut u32) -> Outcome {
        let (most, size) = (30_100, dtype.size());
        let mut values = Values::new(inputs as u64 * 100 + dtype as u64 * 2 + u64::from(any));
        let data: Vec<Vec<u8>> = (0..inputs).map(|_| values.elements(dtype, most, any)).collect();
        for (index, data) in data.iter().enumerate() {
            let view = self.inputs[index].view(0, dtype, most)?;
            self.upload(view, data)?;
        }
        let views: Vec<View> =
            self.inputs[..inputs].iter().map(|memory| memory.view(0, dtype, most)).collect::<Result<_, _>>()?;
        for op in ReduceOp::ALL {
            for (before, after) in FACTORS {
                let plan = Plan::new(dtype, Reduction::new(op).scaled(before, after), inputs);
                let mut outputs = Vec::new();
                let mut at = 0;
                for (elements, offset, shift) in SHAPES {
                    outputs.push((self.out.view(at + shift * size, dtype, elements)?, offset * size));
                    at = (at + (shift + elements) * size).next_multiple_of(16);
                    if at + 40_000 * size > ROOM {
                        at = 0;
                        self.compare(&plan, &views, &data, &outputs, count, wrong)?;
                        outputs.clear();
                    }
                }
                self.compare(&plan, &views, &data, &outputs, count, wrong)?;
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        plan: &Plan,
        views: &[View],
        data: &[Vec<u8>],
        outputs: &[(View, usize)],
        count: &mut u32,
        wrong: &mut u32,
    ) -> Outcome {
        self.kernels.combine(plan, views, outputs, &self.stream)?;
        for (out, offset) in outputs {
            let result = self.download(*out)?;
            // The host's kernels want their operands aligned.
            let copies: Vec<Vec<u64>> = data.iter().map(|data| aligned(&data[*offset..offset + out.bytes()])).collect();
            let operands: Vec<&[u8]> = copies.iter().map(|copy| &bytemuck::cast_slice(copy)[..out.bytes()]).collect();
            let mut expected = vec![0_u64; out.bytes().div_ceil(8)];
            let expected = &mut bytemuck::cast_slice_mut(&mut expected)[..out.bytes()];
            kernel::combine(plan, &operands, expected);
            *count += 1;
            if let Some(difference) = difference(plan.dtype, &result, expected) {
                *wrong += 1;
                if *wrong <= 40 {
                    println!("{plan:?} of {} inputs, {} elements: {difference}", views.len(), out.len());
                }
            }
        }
        Ok(())
    }

    fn copies(&mut self) -> Outcome {
        let data = Values::new(1).elements(DType::U8, 40_000, true);
        let from = self.inputs[0].view(0, DType::U8, data.len())?;
        self.upload(from, &data)?;
        for (shift, offset) in [(0, 0), (4, 8), (1, 0), (0, 3), (5, 5)] {
            self.stream.clear(self.out.view(0, DType::U8, ROOM)?)?;
            let mut pairs = Vec::new();
            let mut at = shift;
            for index in 0..400 {
                let bytes = [1, 16, 33, 64, 0, 127][index % 6];
                pairs.push((self.out.view(at, DType::U8, bytes)?, from.part(offset + index, offset + index + bytes)));
                at += 256;
            }
            pairs.push((self.out.view(at, DType::U8, 39_001)?, from.part(offset, offset + 39_001)));
            self.kernels.copy(&pairs, &self.stream)?;
            let all = self.download(self.out.view(0, DType::U8, ROOM)?)?;
            let start = |view: &View| (view.address() - self.out.address()) as usize;
            let mut expected = vec![0; ROOM];
            for (to, from) in &pairs {
                let source = (from.address() - self.inputs[0].address()) as usize;
                expected[start(to)..start(to) + to.bytes()].copy_from_slice(&data[source..source + to.bytes()]);
            }
            assert!(all == expected, "copies at {shift} from {offset}");
        }
        println!("copies: ok");
        Ok(())
    }

    fn fills(&mut self) -> Outcome {
        for (dtype, element) in [
            (DType::U8, &[7_u8][..]),
            (DType::F16, &[0x00, 0x7c]),
            (DType::F32, &[1, 2, 3, 4]),
            (DType::I64, &[1, 2, 3, 4, 5, 6, 7, 8]),
        ] {
            for (first, count) in [(0, 1000), (1, 1), (3, 20_001), (2, 0), (1, 30)] {
                let all = self.out.view(0, DType::U8, ROOM)?;
                self.stream.clear(all)?;
                let view = self.out.view(first * dtype.size(), dtype, count)?;
                self.kernels.fill(view, element, &self.stream)?;
                let filled = self.download(all)?;
                let (from, to) = (first * dtype.size(), (first + count) * dtype.size());
                assert!(filled[from..to].chunks(dtype.size()).all(|bytes| bytes == element), "filled with {dtype:?}");
                assert!(filled[..from].iter().chain(&filled[to..]).all(|byte| *byte == 0), "nothing else is touched");
            }
        }
        println!("fills: ok");
        Ok(())
    }
}

fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

/// Bytes that travel per second, read and written ones together.
fn speed(gpu: &Arc<Gpu>) -> Outcome {
    const BYTES: usize = 256 << 20;
    const TIMES: u32 = 20;
    let (kernels, stream) = (Kernels::load(gpu)?, gpu.stream(false)?);
    let memory = (0..5).map(|_| DeviceMemory::new(gpu, BYTES)).collect::<Result<Vec<_>, _>>()?;
    for memory in &memory {
        stream.clear(memory.view(0, DType::U8, BYTES)?)?;
    }
    let rate = |what: String, moved: usize, work: &dyn Fn() -> Outcome| -> Outcome {
        work()?;
        finish(&stream)?;
        let start = Instant::now();
        (0..TIMES).try_for_each(|_| work())?;
        while !stream.is_done()? {
            std::hint::spin_loop();
        }
        let time = start.elapsed().as_secs_f64() / f64::from(TIMES);
        println!("{what}: {:.3} ms, {:.0} GB/s", time * 1e3, moved as f64 / time / 1e9);
        Ok(())
    };
    let whole = |index: usize, dtype: DType| memory[index].view(0, dtype, BYTES / dtype.size());
    let (to, from) = (whole(0, DType::U8)?, whole(1, DType::U8)?);
    rate("driver's copy of 256 MiB".into(), 2 * BYTES, &|| Ok(stream.copy(to, from)?))?;
    rate("our copy of 256 MiB".into(), 2 * BYTES, &|| Ok(kernels.copy(&[(to, from)], &stream)?))?;
    let (odd_to, odd_from) = (to.part(4, BYTES), from.part(0, BYTES - 4));
    rate("our copy to an odd address".into(), 2 * BYTES, &|| Ok(kernels.copy(&[(odd_to, odd_from)], &stream)?))?;
    for (dtype, reduction) in [
        (DType::F32, Reduction::SUM),
        (DType::F32, Reduction::AVERAGE),
        (DType::BF16, Reduction::AVERAGE),
        (DType::F16, Reduction::AVERAGE),
        (DType::F64, Reduction::SUM),
        (DType::I8, Reduction::SUM),
        (DType::I64, Reduction::AVERAGE),
    ] {
        for inputs in [2, 4] {
            let plan = Plan::new(dtype, reduction, inputs);
            let operands = (1..=inputs).map(|index| whole(index, dtype)).collect::<Result<Vec<_>, _>>()?;
            let out = whole(0, dtype)?;
            let what = format!("{} of {inputs} × 256 MiB of {}", reduction.op.name(), dtype.name());
            rate(what, (inputs + 1) * BYTES, &|| Ok(kernels.combine(&plan, &operands, &[(out, 0)], &stream)?))?;
        }
    }
    Ok(())
}
