//! The stand-in for the CUDA driver and NCCL (see `tests/stand-in`), and what tests with it have in common. Both
//! libraries are loaded once per process, so a test that needs different variables from the rest runs in a process of
//! its own.

use std::{
    env,
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use sirtaki_comm::{
    DType, Stopper,
    device::{DeviceMemory, Driver, Gpu, Nccl, NcclGroup, PinnedMemory, Stream, UniqueId, View},
};

use crate::{data::Data, wait};

/// Names the test that a process was started for.
const ALONE: &str = "STAND_IN_TEST";

/// The library, which cargo puts next to the tests that depend on it.
pub fn library() -> PathBuf {
    let program = env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let places = [folder.to_path_buf(), folder.join("deps")];
    let library = places.iter().map(|place| place.join("libsirtaki_stand_in.so")).find(|path| path.exists());
    library.unwrap_or_else(|| panic!("libsirtaki_stand_in.so is not beside {}", program.display()))
}

/// Lets the tests of a process run one at a time. As with the real driver, freeing memory waits for everything that its
/// device has to do, and two tests with the same devices could wait for each other for ever.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the devices.
pub fn gpu(number: u32) -> Arc<Gpu> {
    Gpu::open(Driver::load(Some(&library())).unwrap(), number).unwrap()
}

/// The library as NCCL.
pub fn nccl() -> Arc<Nccl> {
    Nccl::load(Some(&library())).unwrap()
}

/// Whether this is the process for the test of this name. If not, one is started with these variables, and must pass.
pub fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let output = another(test, variables).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    false
}

/// Another process of the test of this name, in which [`alone`] is true.
pub fn another(test: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command.envs(variables.iter().copied());
    command
}

/// A process that does not outlive the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a stream has finished everything.
pub fn finish(stream: &Stream) {
    wait::until("the stream", || stream.is_done().unwrap());
}

/// Memory of a device that holds this data.
pub fn upload(data: &Data, stream: &Stream) -> (DeviceMemory, View) {
    let slice = data.slice();
    let memory = DeviceMemory::on_stream(stream, data.bytes().len()).unwrap();
    let view = memory.view(0, slice.dtype(), slice.len()).unwrap();
    let mut pinned = PinnedMemory::new(stream.gpu(), data.bytes().len()).unwrap();
    pinned.copy_from_slice(data.bytes());
    pinned.copy_to(0, view, stream).unwrap();
    finish(stream);
    (memory, view)
}

/// What memory of a device holds once the stream has finished everything.
pub fn download(view: View, stream: &Stream) -> Data {
    let mut pinned = PinnedMemory::new(stream.gpu(), view.bytes()).unwrap();
    pinned.copy_from(0, view, stream).unwrap();
    finish(stream);
    let mut data = Data::zeros(view.dtype(), view.len());
    data.bytes_mut().copy_from_slice(&pinned[..view.bytes()]);
    data
}

/// A rank that is a thread, with a device and a stream of its own.
pub struct Member {
    /// Its part in the group.
    pub group: NcclGroup,
    /// Where its work is queued.
    pub stream: Stream,
    /// Its number.
    pub rank: usize,
    /// What stops its part in the group.
    pub stopper: Stopper,
}

impl Member {
    /// Joins the group with this identity.
    pub fn connect(id: UniqueId, rank: usize, size: usize) -> Member {
        let gpu = gpu(rank as u32);
        let stream = gpu.stream(false).unwrap();
        let stopper = Stopper::new();
        let group = NcclGroup::connect(nccl(), gpu, id, (rank, size), stopper.clone()).unwrap();
        Member { group, stream, rank, stopper }
    }
}

/// A group of this many ranks, in order.
pub fn connect(size: usize) -> Vec<Member> {
    let id = nccl().unique_id().unwrap();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || Member::connect(id, rank, size))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Has all ranks of a new group do something at once; returns what each one returned.
pub fn each<R: Send>(size: usize, work: impl Fn(&mut Member) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let ranks: Vec<_> = connect(size)
            .into_iter()
            .map(|mut member| {
                scope.spawn(move || {
                    let result = work(&mut member);
                    finish(&member.stream);
                    member.group.leave();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Holds up a stream until it is opened: its device waits for a rank that comes only then.
pub struct Barrier {
    ranks: Vec<Member>,
    memory: Vec<(DeviceMemory, View)>,
}

impl Barrier {
    /// Queues it on a stream.
    pub fn new(stream: &Stream) -> Barrier {
        let mut ranks = connect(2);
        let zero = Data::zeros(DType::U8, 1);
        let memory: Vec<_> = ranks.iter().map(|rank| upload(&zero, &rank.stream)).collect();
        ranks[0].group.broadcast(&[memory[0].1], 1, stream).unwrap();
        Barrier { ranks, memory }
    }

    /// Lets the stream go on.
    pub fn open(mut self) {
        let Member { group, stream, .. } = &mut self.ranks[1];
        group.broadcast(&[self.memory[1].1], 1, stream).unwrap();
        finish(stream);
    }
}
