//! Collectives of ranks that share the GPU, each a process of its own, against what the host computes.

use std::{
    env, fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    Communicator, DType, Plan, Rank, ReduceOp, Reduction, Settings,
    device::{DeviceArena, DeviceMemory, Gpu, Kernels, PinnedMemory, Stream, View},
    kernel,
    rendezvous::{FileStore, connect},
    secure::Secret,
};

use crate::{
    Outcome, finish, gpu,
    values::{Values, difference},
};

const SECRET: &str = "DEVICE_CHECK_SECRET";
/// Elements of the tensors of one call: odd ones, none, and more than a small piece.
const SIZES: [usize; 6] = [1, 1000, 0, 4099, 30_001, 16];
/// Bytes of device memory for tensors.
const ROOM: usize = 4 << 20;

/// Starts ranks, and waits for them.
pub(crate) fn start(sizes: &[usize]) -> Outcome {
    for &size in sizes {
        let folder = env::temp_dir().join(format!("device_check-{}-{size}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let secret = Secret::random()?;
        let mut ranks = Vec::new();
        for rank in 0..size {
            let mut command = Command::new(env::current_exe()?);
            command.args(["rank", &rank.to_string(), &size.to_string()]).arg(&folder);
            ranks.push(command.env(SECRET, secret.to_hex().as_str()).spawn()?);
        }
        let ends = ranks.iter_mut().map(|rank| rank.wait()).collect::<Result<Vec<_>, _>>()?;
        fs::remove_dir_all(&folder)?;
        if let Some(rank) = ends.iter().position(|end| !end.success()) {
            return Err(format!("rank {rank} of {size}: {}", ends[rank]).into());
        }
    }
    Ok(())
}

/// One rank.
pub(crate) fn rank(rank: Rank, size: usize, folder: &str) -> Outcome {
    let secret = Secret::from_hex(&env::var(SECRET)?)?;
    let store = Arc::new(FileStore::new(folder, "device_check")?);
    let mut comm = connect(store, rank, size, Settings::new(secret))?;
    let gpu = gpu()?;
    let kernels = Arc::new(Kernels::load(&gpu)?);
    let arena = DeviceArena::connect(&mut *comm, kernels.clone())?;
    let (memory, host) = (DeviceMemory::new(&gpu, ROOM)?, PinnedMemory::new(&gpu, ROOM)?);
    let mut check = Check { rank, size, comm, arena, stream: gpu.stream(true)?, memory, host };
    for piece in [1 << 10, 40 << 10, 64 << 20] {
        check.arena.set_piece(piece);
        check.all()?;
    }
    if rank == 0 {
        println!("{size} ranks that share {gpu:?}: collectives ok");
    }
    check.speed(&gpu)?;
    if !check.arena.leave(&check.comm.stopper())? {
        return Err("the others did not leave".into());
    }
    // Once more, and away without a word.
    let mut again = DeviceArena::connect(&mut *check.comm, kernels)?;
    let view = check.memory.view(0, DType::F32, 1000)?;
    again.all_reduce(&mut *check.comm, &[view], Reduction::SUM, &check.stream)?;
    finish(&check.stream)
}

struct Check {
    rank: Rank,
    size: usize,
    comm: Box<dyn Communicator>,
    arena: DeviceArena,
    stream: Stream,
    memory: DeviceMemory,
    host: PinnedMemory,
}

/// What a rank contributes to a tensor.
fn data(rank: Rank, tensor: usize, dtype: DType, count: usize) -> Vec<u8> {
    Values::new((rank * 100 + tensor) as u64).elements(dtype, count, false)
}

/// What the host makes of the contributions of all ranks.
fn reduced(dtype: DType, reduction: Reduction, inputs: &[Vec<u8>]) -> Vec<u8> {
    let words = |bytes: &Vec<u8>| {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        words
    };
    let (length, words) = (inputs[0].len(), inputs.iter().map(words).collect::<Vec<_>>());
    let operands: Vec<&[u8]> = words.iter().map(|words| &bytemuck::cast_slice(words)[..length]).collect();
    let mut out = vec![0_u64; length.div_ceil(8)];
    let out = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut out)[..length];
    kernel::combine(&Plan::new(dtype, reduction, inputs.len()), &operands, out);
    out.to_vec()
}

impl Check {
    /// Places tensors one after another, not all at multiples of 16 bytes, and fills them.
    fn place(&mut self, tensors: &[(DType, Vec<u8>)]) -> Outcome<Vec<View>> {
        let (mut at, mut views) = (0_usize, Vec::new());
        for (index, (dtype, bytes)) in tensors.iter().enumerate() {
            at = at.next_multiple_of(16) + index % 2 * dtype.size();
            self.host[at..at + bytes.len()].copy_from_slice(bytes);
            views.push(self.memory.view(at, *dtype, bytes.len() / dtype.size())?);
            at += bytes.len();
        }
        self.host.copy_to(0, self.memory.view(0, DType::U8, ROOM)?, &self.stream)?;
        finish(&self.stream)?;
        Ok(views)
    }

    fn expect(&mut self, what: &str, view: View, expected: &[u8]) -> Outcome {
        self.host.copy_from(0, view, &self.stream)?;
        finish(&self.stream)?;
        match difference(view.dtype(), &self.host[..view.bytes()], expected) {
            None => Ok(()),
            Some(difference) => Err(format!("{what} of {view:?} on rank {}: {difference}", self.rank).into()),
        }
    }

    fn all(&mut self) -> Outcome {
        for op in ReduceOp::ALL {
            self.all_reduce(Reduction::new(op))?;
        }
        self.all_reduce(Reduction::SUM.scaled(0.5, 3.0))?;
        (0..self.size).try_for_each(|root| self.broadcast(root))?;
        self.parts(None)?;
        self.parts(Some(Reduction::AVERAGE))?;
        self.all_to_all()
    }

    fn all_reduce(&mut self, reduction: Reduction) -> Outcome {
        let tensors = |rank| -> Vec<(DType, Vec<u8>)> {
            let kinds = DType::ALL.iter().flat_map(|dtype| SIZES.map(|count| (*dtype, count)));
            kinds.enumerate().map(|(i, (dtype, count))| (dtype, data(rank, i, dtype, count))).collect()
        };
        let views = self.place(&tensors(self.rank))?;
        self.arena.all_reduce(&mut *self.comm, &views, reduction, &self.stream)?;
        let inputs: Vec<_> = (0..self.size).map(tensors).collect();
        for (index, view) in views.iter().enumerate() {
            let operands: Vec<_> = inputs.iter().map(|tensors| tensors[index].1.clone()).collect();
            self.expect("all_reduce", *view, &reduced(view.dtype(), reduction, &operands))?;
        }
        Ok(())
    }

    fn broadcast(&mut self, root: Rank) -> Outcome {
        let tensors = |rank| SIZES.map(|count| (DType::BF16, data(rank, count, DType::BF16, count)));
        let views = self.place(&tensors(self.rank))?;
        self.arena.broadcast(&mut *self.comm, &views, root, &self.stream)?;
        for (view, (_, expected)) in views.iter().zip(tensors(root)) {
            self.expect("broadcast", *view, &expected)?;
        }
        Ok(())
    }

    /// An all-gather, or with a reduction a reduce-scatter, with parts of different sizes.
    fn parts(&mut self, reduction: Option<Reduction>) -> Outcome {
        let (rank, size) = (self.rank, self.size);
        let counts = |tensor: usize| -> Vec<usize> { (0..size).map(|rank| SIZES[(rank + tensor) % 6]).collect() };
        let tensors = |rank: Rank| -> Vec<(DType, Vec<u8>)> {
            let whole = |tensor| data(rank, tensor, DType::F32, counts(tensor).iter().sum());
            (0..3).map(|tensor| (DType::F32, whole(tensor))).collect()
        };
        let views = self.place(&tensors(rank))?;
        let views: Vec<_> = views.into_iter().enumerate().map(|(i, view)| (view, counts(i))).collect();
        match reduction {
            None => self.arena.all_gather(&mut *self.comm, &views, &self.stream)?,
            Some(reduction) => self.arena.reduce_scatter(&mut *self.comm, &views, reduction, &self.stream)?,
        }
        let inputs: Vec<_> = (0..size).map(tensors).collect();
        for (index, (view, counts)) in views.iter().enumerate() {
            let mut start = 0;
            for (part, count) in counts.iter().enumerate() {
                let (elements, bytes) = (view.part(start, start + count), start * 4..(start + count) * 4);
                start += count;
                let parts: Vec<Vec<u8>> = inputs.iter().map(|all| all[index].1[bytes.clone()].to_vec()).collect();
                match reduction {
                    None => self.expect("all_gather", elements, &parts[part])?,
                    Some(reduction) if part == rank => {
                        self.expect("reduce_scatter", elements, &reduced(DType::F32, reduction, &parts))?;
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn all_to_all(&mut self) -> Outcome {
        let (rank, size) = (self.rank, self.size);
        let count = |from: Rank, to: Rank| SIZES[(2 * from + to) % 6];
        let sent: Vec<usize> = (0..size).map(|to| count(rank, to)).collect();
        let received: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
        let message = |from, to| data(from, to, DType::I32, count(from, to));
        let out: Vec<u8> = (0..size).flat_map(|to| message(rank, to)).collect();
        let into = vec![0; received.iter().sum::<usize>() * 4];
        let views = self.place(&[(DType::I32, out), (DType::I32, into)])?;
        self.arena.all_to_all(&mut *self.comm, (views[0], &sent), (views[1], &received), &self.stream)?;
        let expected: Vec<u8> = (0..size).flat_map(|from| message(from, rank)).collect();
        self.expect("all_to_all", views[1], &expected)
    }

    /// How long all-reduces take from the first call until the stream is done, the slowest rank's median.
    fn speed(&mut self, gpu: &Arc<Gpu>) -> Outcome {
        let large = DeviceMemory::new(gpu, 64 << 20)?;
        self.stream.clear(large.view(0, DType::U8, 64 << 20)?)?;
        let element = |bytes: usize| large.view(0, DType::F32, bytes / 4);
        let small =
            (0..100).map(|index| large.view(index << 16, DType::F32, 1 << 12)).collect::<Result<Vec<_>, _>>()?;
        let kinds = [
            ("4 B", 64 << 20, vec![element(4)?]),
            ("1 MiB", 64 << 20, vec![element(1 << 20)?]),
            ("100 × 16 KiB", 64 << 20, small),
            ("64 MiB", 64 << 20, vec![element(64 << 20)?]),
            ("64 MiB in pieces of 16 MiB", 16 << 20, vec![element(64 << 20)?]),
            ("64 MiB in pieces of 8 MiB", 8 << 20, vec![element(64 << 20)?]),
        ];
        for (what, piece, views) in kinds {
            self.arena.set_piece(piece);
            let mut times = Vec::new();
            for _ in 0..60 {
                self.comm.barrier()?;
                let start = Instant::now();
                self.arena.all_reduce(&mut *self.comm, &views, Reduction::AVERAGE, &self.stream)?;
                let queued = start.elapsed();
                while !self.stream.is_done()? {
                    std::hint::spin_loop();
                }
                times.push((start.elapsed(), queued));
            }
            let mut times = times.split_off(10);
            times.sort();
            let median =
                |of: &dyn Fn(&(Duration, Duration)) -> Duration| of(&times[times.len() / 2]).as_secs_f64() * 1e6;
            let mut slowest = vec![median(&|time| time.0), median(&|time| time.1)];
            self.comm.all_reduce((&mut slowest).into(), Reduction::new(ReduceOp::Max))?;
            if self.rank == 0 {
                println!(
                    "all-reduce of {what}, {} ranks: {:.0} µs, queued in {:.0} µs",
                    self.size, slowest[0], slowest[1]
                );
            }
        }
        Ok(())
    }
}
