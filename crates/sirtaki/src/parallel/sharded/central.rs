//! Weights that live once per host, where all its ranks read them.
//!
//! Every rank changes its share of the elements, as with weights of its own, and writes them to memory that the ranks of
//! the host share; nothing is gathered within a host. Between hosts, one rank of each gathers what the others have
//! changed. The optimizer's state is split over all ranks, so a host has at most one of it.
//!
//! Rejected: one rank per host that has all of the state and makes the whole step. The others would wait for it, and the
//! same bytes would be in one process instead of in all.

use std::collections::HashMap;

use burn::{module::Module, tensor::TensorData};
use sirtaki_comm::Rank;
use sirtaki_engine::{Operation, Request, Tensor};

use super::{
    Layout,
    blocks::{Block, Parameter},
    host_memory::HostMemory,
    slices::fill,
};
use crate::{
    Error, Result, World,
    parallel::{convert::engine_type, tensor_names::group},
    world::wrong_type,
};

/// The weights of this rank's host.
#[derive(Debug)]
pub(super) struct HostWeights {
    world: World,
    /// The ranks of this host.
    host: World,
    /// The ranks of all hosts, those of this one included, by their first; in the order of the first ranks.
    hosts: Vec<Vec<Rank>>,
    /// The first ranks of all hosts, if this is one of them and there are several.
    first: Option<World>,
    /// Once it is known what is trained.
    memory: Option<HostMemory>,
}

impl HostWeights {
    /// All ranks call it.
    pub(super) fn new(world: &World) -> Result<Self> {
        let mut hosts = world.engine().group().hosts();
        hosts.sort();
        let here = hosts.iter().position(|ranks| ranks.contains(&world.rank())).unwrap_or(0);
        let (host, first) = match hosts.len() {
            1 => (world.clone(), None),
            _ => {
                let is_first = hosts[here].first() == Some(&world.rank());
                let firsts = world.split(u64::from(is_first))?;
                (world.split(here as u64)?, is_first.then_some(firsts))
            }
        };
        Ok(Self { world: world.clone(), host, hosts, first, memory: None })
    }

    /// How many bytes the ranks of a host share.
    pub(super) fn shared(&self) -> usize {
        self.memory.as_ref().map_or(0, HostMemory::len)
    }

    /// How many hosts there are.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The module with the weights of all ranks, which lie in the host's memory; `changed` has this rank's slices, without
    /// parameters of which it has none.
    pub(super) fn write<M: Module>(
        &mut self,
        purpose: &str,
        layout: &Layout,
        module: M,
        changed: Vec<TensorData>,
    ) -> Result<M> {
        let memory = self.memory(layout)?;
        let mine = layout.own.iter().enumerate().filter(|(_, own)| !own.is_empty());
        for ((number, own), data) in mine.zip(changed) {
            let (size, mut rest) = (layout.blocks.parameters[number].dtype.size(), data.as_bytes());
            for range in own {
                let (part, after) = rest.split_at(range.len() * size);
                memory.write(number, range.start * size, part);
                rest = after;
            }
        }
        self.wait_for_host(purpose)?;
        if self.hosts.len() > 1 {
            if let Some(first) = &self.first {
                self.gather(first, purpose, layout, &memory)?;
            }
            self.wait_for_host(purpose)?;
        }
        let view = |(number, parameter): (usize, &Parameter)| (parameter.id, memory.view(number, parameter));
        let values: HashMap<_, _> = layout.blocks.parameters.iter().enumerate().map(view).collect();
        Ok(fill(module, values))
    }

    /// Returns when all ranks of the host have come here.
    fn wait_for_host(&self, purpose: &str) -> Result<()> {
        self.host.sums(&format!("{purpose}, weights of the host"), [0.0]).map(drop)
    }

    /// The memory, which the host's first rank makes at the first step.
    fn memory(&mut self, layout: &Layout) -> Result<HostMemory> {
        if let Some(memory) = &self.memory {
            return Ok(memory.clone());
        }
        let parameters = &layout.blocks.parameters;
        let refused = |error: sirtaki_comm::CommError| {
            let hint = "free memory, or give containers more shared memory; --strategy sharded needs none";
            Error::setting(error.to_string(), hint)
        };
        let mut made = None;
        let address = self.host.on_rank_0("weights of the host", || {
            let memory = HostMemory::create(parameters).map_err(refused)?;
            let address = memory.address();
            made = Some(memory);
            Ok(address)
        })?;
        let memory = match made {
            Some(memory) => memory,
            None => HostMemory::open(parameters, address).map_err(refused)?,
        };
        Ok(self.memory.insert(memory).clone())
    }

    /// Brings what other hosts have changed into the memory of this one. The first ranks of all hosts call it.
    fn gather(&self, first: &World, purpose: &str, layout: &Layout, memory: &HostMemory) -> Result<()> {
        let here = first.rank();
        let mut requests = Vec::new();
        for block in &layout.blocks.blocks {
            let mut flat = Tensor::zeros(engine_type(block.dtype), self.count(block, here));
            let mut rest = flat.bytes_mut();
            self.each(block, here, |number, start, length| {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(length);
                memory.read(number, start, part);
                rest = after;
            });
            let (name, count) = (format!("{purpose}, new weights of hosts: {}", block.name), flat.len());
            requests.push((Request::new(name, Operation::AllGather, flat.dtype(), &[count]).of_all(), flat));
        }
        let names = layout.blocks.parameters.iter().map(|parameter| parameter.path.as_str());
        let group = group(&format!("{purpose}, new weights of hosts"), names);
        let outputs = first.engine().submit_group(&group, requests).wait()?;
        for (block, output) in layout.blocks.blocks.iter().zip(outputs) {
            let whole = output.into_tensor().ok_or_else(|| wrong_type(&block.name))?;
            let mut rest = whole.bytes();
            for host in 0..self.hosts.len() {
                self.each(block, host, |number, start, length| {
                    let (part, after) = rest.split_at(length);
                    if host != here {
                        memory.write(number, start, part);
                    }
                    rest = after;
                });
            }
        }
        Ok(())
    }

    /// How many elements of a block the ranks of a host have.
    fn count(&self, block: &Block, host: usize) -> usize {
        let mut bytes = 0;
        self.each(block, host, |_, _, length| bytes += length);
        bytes / block.dtype.size()
    }

    /// The number of a parameter, first byte and number of bytes of everything that the ranks of a host have of a block.
    fn each(&self, block: &Block, host: usize, mut show: impl FnMut(usize, usize, usize)) {
        let size = block.dtype.size();
        let spans = self.hosts[host].iter().flat_map(|&rank| block.share(rank, self.world.size()));
        spans.for_each(|span| show(span.parameter, span.elements.start * size, span.elements.len() * size));
    }
}
