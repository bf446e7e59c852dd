//! The function table of a loaded library, generic over the width of its handles.
//!
//! The two families agree on every signature except for one type: a handle is a pointer in Open MPI and an `int` in
//! MPICH and its kin. So the table is written once, and a family is a table of constants.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

use libloading::os::unix::Library;

use super::raw::{Answer, Code, Comm, Mpi, MpiOp, MpiRequest, Parts, Route, Threads, Type};
use crate::CommError;

/// A handle in the form a library passes it.
pub(super) trait Word: Copy + Default + Send + Sync + 'static {
    fn widen(self) -> usize;
    fn narrow(word: usize) -> Self;
}

/// Open MPI: a pointer, carried as a number because it is never dereferenced here.
impl Word for usize {
    fn widen(self) -> usize {
        self
    }
    fn narrow(word: usize) -> Self {
        word
    }
}

/// MPICH: an `int`.
impl Word for c_int {
    fn widen(self) -> usize {
        self as u32 as usize
    }
    fn narrow(word: usize) -> Self {
        word as c_int
    }
}

/// What a family fixes in its header file instead of exporting it.
pub(super) struct Constants<H> {
    pub world: H,
    pub errors_return: H,
    pub types: [H; Type::COUNT],
    pub ops: [H; MpiOp::COUNT],
    pub in_place: usize,
    /// Whether `MPI_Reduce` can be trusted to work in place.
    pub reduces_in_place: bool,
    pub status_ignore: usize,
    pub any_source: c_int,
}

/// `MPI_UNDEFINED`, the same in both families.
const UNDEFINED: c_int = -32766;
/// The longest text of either family (MPICH's version).
const TEXT: usize = 8192;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions used here. Every one returns a code; zero is success.
        struct Functions<H> {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Word> Functions<H> {
            fn find(library: &Library) -> Result<Self, CommError> {
                Ok(Self {
                    // SAFETY: the standard fixes these signatures; `H` is the family's handle.
                    $($name: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }.map_err(|error| {
                        CommError::Unavailable { what: $symbol.into(), reason: error.to_string() }
                    })?,)*
                })
            }
        }
    };
}

functions! {
    get_library_version = "MPI_Get_library_version" (*mut c_char, *mut c_int);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    initialized = "MPI_Initialized" (*mut c_int);
    finalized = "MPI_Finalized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    query_thread = "MPI_Query_thread" (*mut c_int);
    finalize = "MPI_Finalize" ();
    comm_rank = "MPI_Comm_rank" (H, *mut c_int);
    comm_size = "MPI_Comm_size" (H, *mut c_int);
    comm_dup = "MPI_Comm_dup" (H, *mut H);
    comm_split = "MPI_Comm_split" (H, c_int, c_int, *mut H);
    comm_free = "MPI_Comm_free" (*mut H);
    comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H);
    barrier = "MPI_Barrier" (H);
    allreduce = "MPI_Allreduce" (*const c_void, *mut c_void, c_int, H, H, H);
    reduce = "MPI_Reduce" (*const c_void, *mut c_void, c_int, H, H, c_int, H);
    reduce_scatter = "MPI_Reduce_scatter" (*const c_void, *mut c_void, *const c_int, H, H, H);
    bcast = "MPI_Bcast" (*mut c_void, c_int, H, c_int, H);
    allgatherv = "MPI_Allgatherv" (*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H);
    alltoall = "MPI_Alltoall" (*const c_void, c_int, H, *mut c_void, c_int, H, H);
    iallgather = "MPI_Iallgather" (*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    send = "MPI_Send" (*const c_void, c_int, H, c_int, c_int, H);
    recv = "MPI_Recv" (*mut c_void, c_int, H, c_int, c_int, H, *mut c_void);
    isend = "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    iprobe = "MPI_Iprobe" (c_int, c_int, H, *mut c_int, *mut c_void);
    test = "MPI_Test" (*mut H, *mut c_int, *mut c_void);
}

/// A loaded library.
pub(super) struct Table<H> {
    functions: Functions<H>,
    constants: Constants<H>,
}

impl<H: Word> Table<H> {
    pub(super) fn new(library: &Library, constants: Constants<H>) -> Result<Self, CommError> {
        Ok(Self { functions: Functions::find(library)?, constants })
    }

    fn type_of(&self, of: Type) -> H {
        self.constants.types[of as usize]
    }

    fn op_of(&self, op: MpiOp) -> H {
        self.constants.ops[op as usize]
    }

    fn in_place(&self) -> *const c_void {
        self.constants.in_place as *const c_void
    }

    fn ignore(&self) -> *mut c_void {
        self.constants.status_ignore as *mut c_void
    }

    fn text(&self, ask: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
        let mut bytes = vec![0u8; TEXT];
        let mut length = 0;
        if ask(bytes.as_mut_ptr().cast(), &mut length) != 0 {
            return "unknown".into();
        }
        let end = usize::try_from(length).unwrap_or(0).min(TEXT);
        String::from_utf8_lossy(&bytes[..end]).trim_end_matches(['\0', '\n', ' ']).to_owned()
    }
}

fn check(code: c_int) -> Answer {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

fn number(ask: impl FnOnce(*mut c_int) -> c_int) -> Answer<c_int> {
    let mut value = 0;
    check(ask(&mut value)).map(|()| value)
}

fn handle<H: Word>(ask: impl FnOnce(*mut H) -> c_int) -> Answer<usize> {
    let mut value = H::default();
    check(ask(&mut value)).map(|()| value.widen())
}

/// Elements in `bytes`. Callers cut longer buffers, so saturating only keeps a mistake from overrunning.
fn count(bytes: &[u8], of: Type) -> c_int {
    c_int::try_from(bytes.len() / of.size()).unwrap_or(c_int::MAX)
}

fn comm<H: Word>(comm: Comm) -> H {
    H::narrow(comm.0)
}

// SAFETY, for every block below: the functions have the signatures the standard gives them, handles come from this
// library, buffers and lengths come from the same slice (or from a caller of an `unsafe` function who promises them),
// and blocking calls keep no pointer after they return.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<H: Word> Mpi for Table<H> {
    fn version(&self) -> String {
        self.text(|text, length| unsafe { (self.functions.get_library_version)(text, length) })
    }

    fn explain(&self, code: Code) -> String {
        self.text(|text, length| unsafe { (self.functions.error_string)(code.0, text, length) })
    }

    fn is_initialized(&self) -> bool {
        number(|flag| unsafe { (self.functions.initialized)(flag) }) != Ok(0)
    }

    fn is_finalized(&self) -> bool {
        number(|flag| unsafe { (self.functions.finalized)(flag) }) != Ok(0)
    }

    fn init(&self, wanted: Threads) -> Answer<Threads> {
        // Null arguments are allowed since MPI 2: the library then asks its launcher for everything.
        number(|given| unsafe { (self.functions.init_thread)(null_mut(), null_mut(), wanted as c_int, given) })
            .map(Threads::from_level)
    }

    fn threads(&self) -> Answer<Threads> {
        number(|level| unsafe { (self.functions.query_thread)(level) }).map(Threads::from_level)
    }

    fn finalize(&self) -> Answer {
        check(unsafe { (self.functions.finalize)() })
    }

    fn world(&self) -> Comm {
        Comm(self.constants.world.widen())
    }

    fn rank(&self, group: Comm) -> Answer<usize> {
        number(|rank| unsafe { (self.functions.comm_rank)(comm(group), rank) }).map(|rank| rank.max(0) as usize)
    }

    fn size(&self, group: Comm) -> Answer<usize> {
        number(|size| unsafe { (self.functions.comm_size)(comm(group), size) }).map(|size| size.max(0) as usize)
    }

    fn duplicate(&self, group: Comm) -> Answer<Comm> {
        handle::<H>(|new| unsafe { (self.functions.comm_dup)(comm(group), new) }).map(Comm)
    }

    fn split(&self, group: Comm, colour: Option<c_int>) -> Answer<Option<Comm>> {
        let new = handle::<H>(|new| unsafe {
            (self.functions.comm_split)(comm(group), colour.unwrap_or(UNDEFINED), 0, new)
        })?;
        Ok(colour.map(|_| Comm(new)))
    }

    fn free(&self, group: Comm) -> Answer {
        let mut group: H = comm(group);
        check(unsafe { (self.functions.comm_free)(&mut group) })
    }

    fn return_errors(&self, group: Comm) -> Answer {
        check(unsafe { (self.functions.comm_set_errhandler)(comm(group), self.constants.errors_return) })
    }

    fn barrier(&self, group: Comm) -> Answer {
        check(unsafe { (self.functions.barrier)(comm(group)) })
    }

    fn all_reduce(&self, data: &mut [u8], of: Type, op: MpiOp, group: Comm) -> Answer {
        let (count, into) = (count(data, of), data.as_mut_ptr().cast());
        let (of, op) = (self.type_of(of), self.op_of(op));
        check(unsafe { (self.functions.allreduce)(self.in_place(), into, count, of, op, comm(group)) })
    }

    fn reduce(&self, data: &mut [u8], of: Type, op: MpiOp, root: usize, group: Comm) -> Answer {
        let count = count(data, of);
        let is_root = self.rank(group)? == root;
        let copy = if is_root && !self.constants.reduces_in_place { data.to_vec() } else { Vec::new() };
        let mine: *mut c_void = data.as_mut_ptr().cast();
        let (from, into) = match (is_root, self.constants.reduces_in_place) {
            (true, true) => (self.in_place(), mine),
            (true, false) => (copy.as_ptr().cast(), mine),
            (false, _) => (mine.cast_const(), null_mut()),
        };
        let (of, op) = (self.type_of(of), self.op_of(op));
        check(unsafe { (self.functions.reduce)(from, into, count, of, op, root as c_int, comm(group)) })
    }

    fn reduce_scatter(&self, data: &mut [u8], counts: &[c_int], of: Type, op: MpiOp, group: Comm) -> Answer {
        let into = data.as_mut_ptr().cast();
        let (of, op) = (self.type_of(of), self.op_of(op));
        check(unsafe { (self.functions.reduce_scatter)(self.in_place(), into, counts.as_ptr(), of, op, comm(group)) })
    }

    fn broadcast(&self, data: &mut [u8], of: Type, root: usize, group: Comm) -> Answer {
        let (count, bytes) = (count(data, of), data.as_mut_ptr().cast());
        check(unsafe { (self.functions.bcast)(bytes, count, self.type_of(of), root as c_int, comm(group)) })
    }

    fn all_gather(&self, data: &mut [u8], parts: Parts<'_>, of: Type, group: Comm) -> Answer {
        let into = data.as_mut_ptr().cast();
        let (counts, starts, of) = (parts.counts.as_ptr(), parts.starts.as_ptr(), self.type_of(of));
        check(unsafe { (self.functions.allgatherv)(self.in_place(), 0, of, into, counts, starts, of, comm(group)) })
    }

    fn transpose(&self, out: &[u64], into: &mut [u64], group: Comm) -> Answer {
        assert!(self.size(group)? == out.len() && out.len() == into.len(), "one number per rank");
        let (out, into, of) = (out.as_ptr().cast(), into.as_mut_ptr().cast(), self.type_of(Type::I64));
        check(unsafe { (self.functions.alltoall)(out, 1, of, into, 1, of, comm(group)) })
    }

    fn send(&self, data: &[u8], of: Type, to: usize, tag: c_int, group: Comm) -> Answer {
        let (count, bytes) = (count(data, of), data.as_ptr().cast());
        check(unsafe { (self.functions.send)(bytes, count, self.type_of(of), to as c_int, tag, comm(group)) })
    }

    fn receive_any(&self, data: &mut [u8], tag: c_int, group: Comm) -> Answer {
        let (count, bytes, of) = (count(data, Type::U8), data.as_mut_ptr().cast(), self.type_of(Type::U8));
        let from = self.constants.any_source;
        check(unsafe { (self.functions.recv)(bytes, count, of, from, tag, comm(group), self.ignore()) })
    }

    fn receive(&self, data: &mut [u8], of: Type, from: usize, tag: c_int, group: Comm) -> Answer {
        let (count, bytes, of) = (count(data, of), data.as_mut_ptr().cast(), self.type_of(of));
        check(unsafe { (self.functions.recv)(bytes, count, of, from as c_int, tag, comm(group), self.ignore()) })
    }

    fn probe_any(&self, tag: c_int, group: Comm) -> Answer<bool> {
        let from = self.constants.any_source;
        number(|flag| unsafe { (self.functions.iprobe)(from, tag, comm(group), flag, self.ignore()) })
            .map(|flag| flag != 0)
    }

    unsafe fn start_all_gather(&self, mine: *const u8, length: c_int, all: *mut u8, group: Comm) -> Answer<MpiRequest> {
        let (mine, all, of) = (mine.cast(), all.cast(), self.type_of(Type::U8));
        handle::<H>(|request| unsafe {
            (self.functions.iallgather)(mine, length, of, all, length, of, comm(group), request)
        })
        .map(MpiRequest)
    }

    unsafe fn start_send(
        &self,
        data: *const u8,
        count: c_int,
        of: Type,
        to: usize,
        route: Route,
    ) -> Answer<MpiRequest> {
        let (of, to) = (self.type_of(of), to as c_int);
        handle::<H>(|request| unsafe {
            (self.functions.isend)(data.cast(), count, of, to, route.tag, comm(route.comm), request)
        })
        .map(MpiRequest)
    }

    unsafe fn start_receive(
        &self,
        data: *mut u8,
        count: c_int,
        of: Type,
        from: usize,
        route: Route,
    ) -> Answer<MpiRequest> {
        let (of, from) = (self.type_of(of), from as c_int);
        handle::<H>(|request| unsafe {
            (self.functions.irecv)(data.cast(), count, of, from, route.tag, comm(route.comm), request)
        })
        .map(MpiRequest)
    }

    fn test(&self, request: &mut MpiRequest) -> Answer<bool> {
        let mut word = H::narrow(request.0);
        let done = number(|flag| unsafe { (self.functions.test)(&mut word, flag, self.ignore()) });
        request.0 = word.widen();
        done.map(|flag| flag != 0)
    }
}
