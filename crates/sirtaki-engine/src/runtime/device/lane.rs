//! One engine's lane on the GPU of its rank: how it is opened, used and closed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError, Communicator, SliceMut, Stopper,
    device::{DeviceArena, Driver, Event, Gpu, Nccl, PinnedMemory, Stream},
};

use super::{
    gate::Gate,
    links,
    timer::{Queued, Timed, Timer},
    transport::{Transport, connect_nccl, connect_shared},
    way::{self, Choice, DeviceSettings, Offer, Way, choose, crowded},
};
use crate::{
    decide::message::{decode, encode},
    runtime::{
        run::{Item, Runner},
        ticket::Output,
    },
    settings::Warn,
    telemetry::{self, Instrument, counts::CollectiveKind},
};

/// Most bytes of a rank's offer.
const OFFER: usize = 1024;
/// How long the device may take to finish its work when the engine is closed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The GPU, and what carries its tensors.
pub(crate) struct DeviceLane {
    pub(super) gpu: Arc<Gpu>,
    pub(super) stream: Stream,
    /// Copies to the host, alongside copies from it.
    pub(super) incoming: Stream,
    pub(super) transport: Transport,
    /// How tensors travel and why, in words.
    way: String,
    pub(super) stopper: Stopper,
    timer: Arc<Timer>,
    telemetry: Arc<telemetry::Stream>,
    /// The host's memory that copies pass through, once it is needed.
    pub(super) pinned: Option<PinnedMemory>,
}

impl DeviceLane {
    /// Opens the lane on GPU `number`; all ranks call it at the same time, each with its own.
    pub(crate) fn open(
        comm: &mut dyn Communicator,
        settings: &DeviceSettings,
        number: Option<u32>,
        warn: &Warn,
        telemetry: &Arc<telemetry::Stream>,
    ) -> Result<Self, CommError> {
        let rank = comm.group().rank();
        let number = number.unwrap_or_else(|| local_rank(comm));
        let found = find(settings, number);
        let mut gate = found.as_ref().ok().map(|gpu| Gate::new(gpu.uuid(), rank));
        let nccl = Nccl::load(settings.nccl.as_deref());
        let offer = Offer {
            gpu: found.as_ref().map(describe_gpu).map_err(text),
            nccl: nccl.as_ref().map(|nccl| nccl.version()).map_err(text),
            wanted: settings.way,
            encrypted: settings.encrypted,
            contended: settings.subset || gate.as_ref().is_some_and(Gate::is_claimed),
        };
        let offers = exchange(comm, &offer)?;
        let members = comm.group().members().to_vec();
        let hosts: Vec<&str> = members.iter().map(|member| member.host_id.as_str()).collect();
        let Choice { way, reason, contended } = choose(&offers, &hosts).map_err(|(rank, problem)| {
            let who = comm.group().describe(rank);
            CommError::Device { problem: format!("{who} cannot use a GPU: {problem}") }
        })?;
        // An offer without a GPU was refused above.
        let (gpu, mut gate) = match (found, gate.take()) {
            (Ok(gpu), Some(gate)) => (gpu, gate),
            (Err(error), _) => return Err(error),
            (Ok(gpu), None) => (gpu.clone(), Gate::new(gpu.uuid(), rank)),
        };
        gate.settle(contended);
        let connected = match way {
            Way::Nccl => connect_nccl(comm, nccl, &gpu, gate).map(Transport::Nccl),
            Way::Shared => connect_shared(comm, &gpu).map(Transport::Shared),
            Way::Staged => Ok(Transport::Staged),
        };
        let (transport, reason) = match connected {
            Err(error) if settings.way.is_some() || comm.stopper().check().is_err() => return Err(error),
            Err(error) if way == Way::Shared => (Transport::Staged, format!("{reason}, and {error}")),
            Err(error) => (Transport::Staged, error.to_string()),
            Ok(transport) => (transport, reason),
        };
        if matches!(transport, Transport::Staged) && settings.way.is_none() && rank == 0 {
            warn(&format!("tensors of GPUs travel {}", transport.describe(&reason)));
        }
        if let (0, Some(text)) = (rank, crowded(&offers, &hosts)) {
            warn(&text);
        }
        let uuids: Vec<[u8; 16]> = offers.iter().filter_map(|offer| Some(offer.gpu.as_ref().ok()?.uuid)).collect();
        let between = links::describe(settings.nvml.as_deref(), &uuids, &hosts, rank);
        let way = transport.describe(&reason) + &between.map(|text| format!("; {text}")).unwrap_or_default();
        gpu.ignore_captures()?;
        let (stream, incoming) = (gpu.stream(true)?, gpu.stream(true)?);
        let (timer, telemetry) = (Arc::new(Timer::new(&gpu, settings)), telemetry.clone());
        telemetry.add_instrument(timer.clone());
        let stopper = comm.stopper();
        Ok(Self { gpu, stream, incoming, transport, way, stopper, timer, telemetry, pinned: None })
    }

    /// How tensors travel and why, in words that follow "travel".
    pub(crate) fn way(&self) -> &str {
        &self.way
    }

    /// Queues a batch with all other ranks; items without a tensor have no output.
    pub(crate) fn run(
        &mut self,
        host: &mut Runner,
        items: Vec<Item<'_>>,
        number: u64,
    ) -> Result<Vec<Option<Output>>, CommError> {
        let mut last: Option<&Arc<Event>> = None;
        for event in items.iter().filter_map(|item| item.tensor.as_ref()?.ready()) {
            // Tensors that were handed in together have an event in common.
            if last.replace(event).is_some_and(|last| Arc::ptr_eq(last, event)) {
                continue;
            }
            if event.gpu().number() != self.gpu.number() {
                let (other, own) = (event.gpu().number(), self.gpu.number());
                let problem = format!("a tensor on cuda:{other} was handed in by a process that uses cuda:{own}");
                return Err(CommError::Invalid { problem });
            }
            self.stream.wait(event)?;
        }
        let timed = self.begin_timing(&items, number);
        let outputs = if self.can_queue(&items) { self.queue(host, items) } else { self.stage(host, items) };
        let Some(timed) = timed else { return outputs };
        match outputs {
            Ok(mut outputs) if timed.end(&self.stream) => {
                outputs.iter_mut().flatten().filter_map(Output::tensor_mut).for_each(|tensor| tensor.time_by(&timed));
                Ok(outputs)
            }
            outputs => {
                self.timer.forget(&timed);
                outputs
            }
        }
    }

    /// Notes when the device begins with a batch, if somebody wants to know.
    fn begin_timing(&self, items: &[Item<'_>], number: u64) -> Option<Arc<Timed>> {
        let first = items.first().filter(|_| self.telemetry.wants_device_times())?;
        self.timer.collect(&self.telemetry);
        let bytes = items.iter().map(|item| item.request.bytes() as u64).sum();
        let kind = CollectiveKind::of(&first.request.operation);
        self.timer.begin(&self.stream, Queued { number, kind, bytes, tensors: items.len() as u64 })
    }

    /// Whether the device has not done everything yet that was queued for other ranks and this one.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.stream.is_done(), Ok(false))
    }

    /// Ends everything that the device does for other ranks.
    pub(crate) fn abort(&mut self) {
        self.transport.abort();
    }

    /// Leaves the other ranks in good order, once the device has done its work; NCCL would wait for that for ever. What
    /// is left over is memory that others may still read.
    pub(crate) fn close(mut self) -> Option<Box<DeviceArena>> {
        let deadline = Instant::now() + PATIENCE;
        while self.is_busy() {
            if self.stopper.check().is_err() || Instant::now() >= deadline {
                self.transport.abort();
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.timer.collect(&self.telemetry);
        self.transport.leave()
    }
}

fn describe_gpu(gpu: &Arc<Gpu>) -> way::Gpu {
    way::Gpu { uuid: gpu.uuid(), name: gpu.name().into(), seen: gpu.driver().count().unwrap_or(1) }
}

fn text(error: &CommError) -> String {
    error.to_string().chars().take(OFFER / 4).collect()
}

fn find(settings: &DeviceSettings, number: u32) -> Result<Arc<Gpu>, CommError> {
    Gpu::open(Driver::load(settings.driver.as_deref())?, number)
}

/// This rank's number on its host, which is also the number of its GPU if it has never had a tensor.
fn local_rank(comm: &dyn Communicator) -> u32 {
    let (members, rank) = (comm.group().members(), comm.group().rank());
    let here = members[..rank].iter().filter(|member| member.host_id == members[rank].host_id);
    here.count() as u32
}

/// What all ranks offer.
fn exchange(comm: &mut dyn Communicator, mine: &Offer) -> Result<Vec<Offer>, CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut all = vec![0_u8; OFFER * size];
    let bytes = encode(mine);
    let place = &mut all[rank * OFFER..(rank + 1) * OFFER];
    place[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    place[4..4 + bytes.len()].copy_from_slice(&bytes);
    comm.all_gather(SliceMut::from(&mut all), &vec![OFFER; size])?;
    let offers = all.chunks_exact(OFFER).map(|place| {
        let length = u32::from_le_bytes([place[0], place[1], place[2], place[3]]) as usize;
        decode::<Offer>(place.get(4..4 + length)?)
    });
    let strange =
        || CommError::Invalid { problem: "a rank offers what is no offer; do all run the same version?".into() };
    offers.collect::<Option<Vec<Offer>>>().ok_or_else(strange)
}
