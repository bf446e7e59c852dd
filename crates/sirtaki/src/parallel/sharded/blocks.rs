//! A module as flat blocks, of which every rank has a share.
//!
//! The trainable parameters, in the order of the module, are one long row of elements for each element type, cut into
//! blocks. Of each block every rank has a share, so ranks have equal shares of everything whatever the shapes are, and
//! a block is what is in memory in whole at a time. What a rank has of a parameter is one flat slice, put together from
//! its shares of the blocks that the parameter lies in.

use std::ops::Range;

use burn::{
    module::ParamId,
    tensor::{DType, Shape},
};
use sirtaki_engine::decide::request::shares;

/// Most elements of a block.
const BLOCK: usize = 1 << 20;

/// A trainable parameter of a module.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) id: ParamId,
    pub(crate) path: String,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

/// Some neighbouring elements of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its place among the parameters.
    pub(crate) parameter: usize,
    pub(crate) elements: Range<usize>,
}

/// Neighbouring elements of one type, of one or several parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// What it consists of.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) spans: Vec<Span>,
    /// How many elements there are.
    pub(crate) length: usize,
}

/// The parameters of a module, as blocks.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) blocks: Vec<Block>,
}

impl Blocks {
    pub(crate) fn new(parameters: Vec<Parameter>) -> Self {
        Self::of_at_most(parameters, BLOCK)
    }

    fn of_at_most(parameters: Vec<Parameter>, most: usize) -> Self {
        let mut types: Vec<DType> = Vec::new();
        parameters.iter().for_each(|parameter| {
            if !types.contains(&parameter.dtype) {
                types.push(parameter.dtype);
            }
        });
        let mut blocks: Vec<Block> = Vec::new();
        for dtype in types {
            let mut block = Block { name: String::new(), dtype, spans: Vec::new(), length: 0 };
            for (index, parameter) in parameters.iter().enumerate().filter(|(_, parameter)| parameter.dtype == dtype) {
                let (mut start, end) = (0, parameter.shape.num_elements());
                while start < end {
                    let length = (end - start).min(most - block.length);
                    block.spans.push(Span { parameter: index, elements: start..start + length });
                    (start, block.length) = (start + length, block.length + length);
                    if block.length == most {
                        let next = Block { spans: Vec::new(), length: 0, ..block.clone() };
                        blocks.push(std::mem::replace(&mut block, next));
                    }
                }
            }
            blocks.extend(Some(block).filter(|block| block.length > 0));
        }
        for (number, block) in blocks.iter_mut().enumerate() {
            let path = |span: Option<&Span>| span.map_or("", |span| parameters[span.parameter].path.as_str());
            block.name = format!("block {number}, {} to {}", path(block.spans.first()), path(block.spans.last()));
        }
        Self { parameters, blocks }
    }

    /// What a rank has of each parameter, in ascending order.
    pub(crate) fn owned(&self, rank: usize, ranks: usize) -> Vec<Vec<Range<usize>>> {
        let mut owned = vec![Vec::new(); self.parameters.len()];
        for block in &self.blocks {
            for span in block.share(rank, ranks) {
                owned[span.parameter].push(span.elements);
            }
        }
        owned
    }
}

impl Block {
    /// What a rank has of it.
    pub(crate) fn share(&self, rank: usize, ranks: usize) -> Vec<Span> {
        let counts = shares(self.length, ranks);
        let start: usize = counts[..rank].iter().sum();
        self.part(start..start + counts[rank])
    }

    /// The elements at these places of the block.
    fn part(&self, places: Range<usize>) -> Vec<Span> {
        let (mut part, mut place) = (Vec::new(), 0);
        for Span { parameter, elements } in &self.spans {
            let (from, to) = (places.start.max(place), places.end.min(place + elements.len()));
            if from < to {
                let elements = elements.start + from - place..elements.start + to - place;
                part.push(Span { parameter: *parameter, elements });
            }
            place += elements.len();
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parameters(sizes: &[(usize, bool)]) -> Vec<Parameter> {
        let parameter = |(number, &(size, double)): (usize, &(usize, bool))| Parameter {
            id: ParamId::from(number as u64 + 1),
            path: format!("layer.{number}"),
            shape: Shape::from([size]),
            dtype: if double { DType::F64 } else { DType::F32 },
        };
        sizes.iter().enumerate().map(parameter).collect()
    }

    #[test]
    fn parameters_are_cut_where_blocks_end() {
        let blocks = Blocks::of_at_most(parameters(&[(3, false), (2, true), (6, false)]), 4);
        let names: Vec<&str> = blocks.blocks.iter().map(|block| block.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "block 0, layer.0 to layer.2",
                "block 1, layer.2 to layer.2",
                "block 2, layer.2 to layer.2",
                "block 3, layer.1 to layer.1"
            ]
        );
        assert_eq!(
            blocks.blocks[0].share(1, 2),
            [Span { parameter: 0, elements: 2..3 }, Span { parameter: 2, elements: 0..1 }]
        );
    }

    proptest! {
        #[test]
        fn every_element_belongs_to_one_rank_and_shares_are_equal(
            sizes in prop::collection::vec((0_usize..30, any::<bool>()), 0..8),
            ranks in 1_usize..6,
            most in 1_usize..40,
        ) {
            let blocks = Blocks::of_at_most(parameters(&sizes), most);
            let mut seen: Vec<Vec<usize>> = sizes.iter().map(|&(size, _)| vec![0; size]).collect();
            let mut loads = Vec::new();
            for rank in 0..ranks {
                let owned = blocks.owned(rank, ranks);
                loads.push(owned.iter().flatten().map(ExactSizeIterator::len).sum::<usize>());
                for (parameter, ranges) in owned.into_iter().enumerate() {
                    prop_assert!(ranges.is_sorted_by(|one, other| one.end <= other.start));
                    ranges.into_iter().flatten().for_each(|element| seen[parameter][element] += 1);
                }
            }
            prop_assert!(seen.iter().flatten().all(|&count| count == 1));
            prop_assert!(blocks.blocks.iter().all(|block| block.length <= most));
            let total: usize = sizes.iter().map(|(size, _)| size).sum();
            prop_assert!(loads.iter().all(|&load| load <= total / ranks + blocks.blocks.len()));
        }
    }
}
