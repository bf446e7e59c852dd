//! MPI as the rest of the code sees it: one object-safe interface for all libraries, over slices instead of pointers.
//!
//! Counts come from slices, so a call cannot name more memory than it was given. Buffers must hold at most `i32::MAX`
//! elements, MPI's own limit; cutting longer ones is up to the caller.

use std::ffi::c_int;

/// What an element is to MPI. There is no half precision and no boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    I8 = 0,
    U8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F32 = 5,
    F64 = 6,
}

impl Type {
    /// How many types there are.
    pub(super) const COUNT: usize = 7;

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Type::I8 | Type::U8 => 1,
            Type::I16 => 2,
            Type::I32 | Type::F32 => 4,
            Type::I64 | Type::F64 => 8,
        }
    }
}

/// How MPI combines two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MpiOp {
    Sum = 0,
    Min = 1,
    Max = 2,
    Product = 3,
}

impl MpiOp {
    /// How many operations there are.
    pub(super) const COUNT: usize = 4;
}

/// An MPI communicator's handle, whatever its width in the library that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm(pub(super) usize);

/// A started operation. Dropping it does not end the operation: its buffers stay in use until [`Mpi::test`] says
/// it is done.
#[derive(Debug)]
pub struct MpiRequest(pub(super) usize);

/// How many threads may call MPI, in the standard's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threads {
    /// One thread exists.
    Single = 0,
    /// Only the thread that initialised MPI calls it.
    Funneled = 1,
    /// Any thread calls it, one at a time.
    Serialized = 2,
    /// Any threads at any time.
    Multiple = 3,
}

impl Threads {
    pub(super) fn from_level(level: c_int) -> Self {
        match level {
            i32::MIN..=0 => Threads::Single,
            1 => Threads::Funneled,
            2 => Threads::Serialized,
            _ => Threads::Multiple,
        }
    }
}

/// MPI's answer other than success; [`Mpi::explain`] puts it into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub c_int);

/// Success or a code.
pub type Answer<T = ()> = Result<T, Code>;

/// One part of a longer buffer: its elements and where they start, both in elements.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Elements of each rank's part.
    pub counts: &'a [c_int],
    /// Where each rank's part starts.
    pub starts: &'a [c_int],
}

/// The functions of one loaded MPI library.
///
/// Nothing here but [`Mpi::is_initialized`], [`Mpi::is_finalized`], [`Mpi::version`] and [`Mpi::init`] may be called
/// before [`Mpi::init`] or after [`Mpi::finalize`]; the standard calls that erroneous and libraries end the process.
#[allow(missing_docs)]
pub trait Mpi: Send + Sync {
    fn version(&self) -> String;
    fn explain(&self, code: Code) -> String;
    fn is_initialized(&self) -> bool;
    fn is_finalized(&self) -> bool;
    /// Starts MPI for this process and returns the level of threading it provides.
    fn init(&self, wanted: Threads) -> Answer<Threads>;
    /// The level of threading it was started with.
    fn threads(&self) -> Answer<Threads>;
    fn finalize(&self) -> Answer;

    /// The communicator of all processes.
    fn world(&self) -> Comm;
    fn rank(&self, comm: Comm) -> Answer<usize>;
    fn size(&self, comm: Comm) -> Answer<usize>;
    fn duplicate(&self, comm: Comm) -> Answer<Comm>;
    /// Groups ranks with the same colour, in their present order.
    fn split(&self, comm: Comm, colour: Option<c_int>) -> Answer<Option<Comm>>;
    fn free(&self, comm: Comm) -> Answer;
    /// Errors on `comm` come back as codes instead of ending the process.
    fn return_errors(&self, comm: Comm) -> Answer;

    fn barrier(&self, comm: Comm) -> Answer;
    /// In place.
    fn all_reduce(&self, data: &mut [u8], of: Type, op: MpiOp, comm: Comm) -> Answer;
    /// In place on the root, with a copy where the library needs one.
    fn reduce(&self, data: &mut [u8], of: Type, op: MpiOp, root: usize, comm: Comm) -> Answer;
    /// In place; the result is at the beginning of `data`, not at the rank's own part.
    fn reduce_scatter(&self, data: &mut [u8], counts: &[c_int], of: Type, op: MpiOp, comm: Comm) -> Answer;
    fn broadcast(&self, data: &mut [u8], of: Type, root: usize, comm: Comm) -> Answer;
    /// In place.
    fn all_gather(&self, data: &mut [u8], parts: Parts<'_>, of: Type, comm: Comm) -> Answer;
    /// One number to each rank, one from each.
    fn transpose(&self, out: &[u64], into: &mut [u64], comm: Comm) -> Answer;
    fn send(&self, data: &[u8], of: Type, to: usize, tag: c_int, comm: Comm) -> Answer;
    /// Receives bytes from any rank, at most as many as fit.
    fn receive_any(&self, data: &mut [u8], tag: c_int, comm: Comm) -> Answer;
    fn receive(&self, data: &mut [u8], of: Type, from: usize, tag: c_int, comm: Comm) -> Answer;
    /// Whether [`Mpi::receive_any`] would find something now.
    fn probe_any(&self, tag: c_int, comm: Comm) -> Answer<bool>;

    /// Starts collecting `length` bytes from every rank.
    ///
    /// # Safety
    /// `mine` is valid for reading `length` bytes and `all` for writing `length` bytes per rank, until the request is
    /// done.
    unsafe fn start_all_gather(&self, mine: *const u8, length: c_int, all: *mut u8, comm: Comm) -> Answer<MpiRequest>;

    /// Starts sending.
    ///
    /// # Safety
    /// `data` is valid for reading `count` elements until the request is done.
    unsafe fn start_send(&self, data: *const u8, count: c_int, of: Type, to: usize, route: Route)
    -> Answer<MpiRequest>;

    /// Starts receiving.
    ///
    /// # Safety
    /// `data` is valid for writing `count` elements until the request is done.
    unsafe fn start_receive(
        &self,
        data: *mut u8,
        count: c_int,
        of: Type,
        from: usize,
        route: Route,
    ) -> Answer<MpiRequest>;

    /// Whether it is done; afterwards the request must not be used again.
    fn test(&self, request: &mut MpiRequest) -> Answer<bool>;
}

/// Where a message between two ranks belongs.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Only receives with the same tag find it.
    pub tag: c_int,
    /// The same goes for the communicator.
    pub comm: Comm,
}
